"""A subject for the doctor's checks: a configuration, and AWS in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.aws.client import Aws
from cluster.doctor.finding import Subject
from stacks.config import ClusterConfig
from tests.cluster.conftest import aws  # noqa: F401  # a fixture, for the tests of this folder too

Examined = Callable[..., Subject]


def config_of(**values: Any) -> ClusterConfig:
    """Return a configuration with these values."""
    return ClusterConfig(**{"ssh_cidr": ("198.18.0.7/32",), **values})


@pytest.fixture
def subject(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examined:  # noqa: F811  # the fixture above
    """Return a function that creates subjects with an empty home directory and no SSH agent."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    def make(**values: Any) -> Subject:
        return Subject(aws=aws, config=config_of(**values), project=tmp_path, home=tmp_path, key="")

    return make
