"""Facts about a task's way to the cluster: configuration and questions."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from cluster.errors import DeepcdkError, UsageError
from cluster.session import confirm, parse_overrides, read_config
from stacks.config import ConfigError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"cluster": {"workers": 2}}}))
    return tmp_path


def test_overrides_are_key_and_value_and_a_value_may_hold_anything() -> None:
    assert parse_overrides(["workers=4", "name=a=b"]) == {"workers": "4", "name": "a=b"}
    for bad in ("workers", "=4"):
        with pytest.raises(UsageError, match="key=value"):
            parse_overrides([bad])


def test_only_a_deployment_needs_ssh_cidr(project: Path) -> None:
    config, overrides = read_config(project, {"workers": "3"}, deploying=False)
    assert (config.workers, overrides["ssh_cidr"]) == (3, "127.0.0.1/32")
    with pytest.raises(ConfigError, match="ssh_cidr"):
        read_config(project, {}, deploying=True)
    with pytest.raises(ConfigError, match="ssh_cidr"):
        read_config(project, {"ssh_cidr": "everywhere"}, deploying=False)


def test_a_deployment_is_checked_as_a_whole_and_nothing_else_is(project: Path) -> None:
    wrong = {
        "ssh_cidr": "198.18.0.7/32",
        "worker_instance_type": "c5.2xlage",
        "max_workers": "999",
        "vpc_cidr": "10.0.0.0/24",
    }
    with pytest.raises(ConfigError, match=r"(?s)2 problems.*c5\.2xlage.*max_workers"):
        read_config(project, wrong, deploying=True)
    assert read_config(project, wrong, deploying=False)[0].max_workers == 999


def test_nobody_there_is_no_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm("grow?", yes=True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(DeepcdkError) as caught:
        confirm("grow?", yes=False)
    assert "--yes" in caught.value.remedy


@pytest.mark.parametrize(("typed", "consents"), [("y", True), ("YES", True), ("", False), ("n", False)])
def test_only_yes_is_consent(monkeypatch: pytest.MonkeyPatch, typed: str, consents: bool) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda: typed)
    if consents:
        confirm("grow?", yes=False)
    else:
        with pytest.raises(DeepcdkError, match="not done"):
            confirm("grow?", yes=False)


def test_the_end_of_the_input_is_no_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", mock.Mock(side_effect=EOFError))
    with pytest.raises(DeepcdkError, match="not done"):
        confirm("grow?", yes=False)
