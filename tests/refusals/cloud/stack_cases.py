"""Entries that the embedded cloud refuses when it makes a stack of a template: what the rule pack cannot know."""

from __future__ import annotations

from typing import Any, Final

from tests.refusals.case import Case, Template
from tests.refusals.templates import network, ref, resource


def _twice(port: int) -> Template:
    """Return a group with a rule for port 22, and another for a port under another description."""
    ssh = {"GroupId": ref("Group"), "IpProtocol": "tcp", "CidrIp": "198.18.0.0/24"}
    rules: dict[str, Any] = {
        name: resource("EC2::SecurityGroupIngress", **ssh, FromPort=number, ToPort=number, Description=name)
        for name, number in (("One", 22), ("Other", port))
    }
    return network(**rules)


CASES: Final[tuple[Case[Template], ...]] = (Case("EC2-06", _twice(22), "InvalidPermission.Duplicate", _twice(23)),)
