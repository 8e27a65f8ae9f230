"""The session of a task: its configuration and its questions."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.deploy.cdk import context
from cluster.errors import UsageError
from cluster.session import Session, parse_overrides, read_config
from cluster.ssh.ssh_config_file import Files
from stacks.config import ClusterConfig, ConfigError
from tests.words import LONG, WORDS


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"cluster": {"workers": 2}}}))
    return tmp_path


def test_overrides_are_key_and_any_value() -> None:
    assert parse_overrides(["workers=4", "name=a=b"]) == {"workers": "4", "name": "a=b"}
    for bad in ("workers", "=4"):
        with pytest.raises(UsageError, match="key=value"):
            parse_overrides([bad])


@given(text=WORDS)
def test_any_override_is_split_at_its_first_equals_sign_or_refused(text: str) -> None:
    try:
        ((key, value),) = parse_overrides([text]).items()
    except UsageError:
        assert "=" not in text or text.startswith("=")
        return
    assert (f"{key}={value}", "=" in key) == (text, False)
    assert context({key: value}) == ["-c", text]


@given(key=st.sampled_from([field.name for field in dataclasses.fields(ClusterConfig)]), text=WORDS | st.just(LONG))
def test_any_value_is_used_as_given_or_rejected_with_its_key(key: str, text: str) -> None:
    try:
        config = ClusterConfig.from_context({"ssh_cidr": "198.18.0.7/32", key: text})
    except ConfigError:
        return
    taken = getattr(config, key)
    assert not isinstance(taken, str) or taken == text


@given(name=WORDS)
def test_invalid_cluster_name_is_rejected(name: str) -> None:
    try:
        stack = ClusterConfig.from_context({"ssh_cidr": "198.18.0.7/32", "name": name}).stack_name
    except ConfigError:
        return
    assert re.fullmatch("[A-Za-z][A-Za-z0-9-]*", stack)
    assert Files.below(Path("/home/me/.ssh"), stack).config.parent == Path("/home/me/.ssh/deepcdk")


def test_only_deployments_need_access_to_the_master(project: Path) -> None:
    assert read_config(project, {"workers": "3"}, deploying=False).workers == 3
    with pytest.raises(ConfigError, match=r"^cluster.ssh_cidr: missing.*--set ssh_cidr=ADDRESS/32.*session-manager"):
        read_config(project, {}, deploying=True)
    with pytest.raises(ConfigError, match="ssh_cidr"):
        read_config(project, {"ssh_cidr": "everywhere"}, deploying=False)
    for way in ({"ssh_cidr": "198.18.0.7/32"}, {"ssh_access": "session-manager"}):
        assert read_config(project, way, deploying=True).is_reachable


def test_missing_access_does_not_hide_other_problems(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.workers = 'three': must be a whole number"):
        read_config(project, {"workers": "three"}, deploying=True)
    with pytest.raises(ConfigError, match=r"c5\.2xlage"):
        read_config(project, {"worker_instance_type": "c5.2xlage"}, deploying=True)


def test_only_deployments_check_the_whole_configuration(project: Path) -> None:
    wrong = {
        "ssh_cidr": "198.18.0.7/32",
        "worker_instance_type": "c5.2xlage",
        "max_workers": "999",
        "vpc_cidr": "10.0.0.0/24",
    }
    with pytest.raises(ConfigError, match=r"(?s)2 problems.*c5\.2xlage.*max_workers"):
        read_config(project, wrong, deploying=True)
    assert read_config(project, wrong, deploying=False).max_workers == 999


def test_deployment_is_checked_for_the_region_of_the_credentials(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    settings = ["ssh_cidr=198.18.0.7/32", "alarms=true", "alarm_topic=arn:aws:sns:eu-west-1:123456789012:ops"]
    with pytest.raises(ConfigError, match="is in eu-west-1, but the cluster is in us-east-1"):
        Session(project, settings, deploying=True)
    assert Session(project, settings).config.alarms
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert Session(project, settings, deploying=True).config.alarms
