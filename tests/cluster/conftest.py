"""AWS in this process, a session, and pauses that take no time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from cluster import polling
from cluster.aws.client import Aws
from cluster.session import Session


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """Return clients of an empty account."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with mock_aws():
        yield Aws()


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session of a cluster with two workers and an empty home directory."""
    (tmp_path / "cdk.json").write_text('{"context": {"cluster": {"workers": 2}}}')
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    return Session(tmp_path, [])


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between polls, which take no time."""
    pauses: list[float] = []
    monkeypatch.setattr(polling, "sleep", pauses.append)
    monkeypatch.setattr(polling, "monotonic", lambda: sum(pauses))
    return pauses
