"""Security groups that the committed templates do not show."""

from __future__ import annotations

from tests.stacks.clusters.template import Template
from tests.stacks.conftest import Variant


def test_security_group_of_master_without_source_keeps_its_description(variant: Variant, template: Template) -> None:
    """Another description would replace the group if it gets a source later."""
    assert template.group_behind("SSH from ssh_cidr") == variant("temporary").group_behind("SSH from ssh_cidr")
