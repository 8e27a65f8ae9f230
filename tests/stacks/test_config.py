"""The configuration: every value either builds or is rejected with the name of its key."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.config import KEPT_IMAGES, QUALIFIER, ClusterConfig, ConfigError, feature_flags
from stacks.cross_key_checks import cautions

SSH_CIDR = ("198.18.0.7/32",)
FIELDS = [field.name for field in dataclasses.fields(ClusterConfig)]
keys = st.sampled_from(FIELDS)


def build(**values: Any) -> ClusterConfig:
    return ClusterConfig.from_context({"cluster": {"ssh_cidr": SSH_CIDR, **values}})


def words_of(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


@given(key=keys, value=st.text())
def test_any_text_is_accepted_or_rejected_with_its_key(key: str, value: str) -> None:
    try:
        config = build(**{key: value})
    except ConfigError as error:
        meant = int(value) if value.strip("-").isdecimal() and value.isascii() else value
        assert error.value in (value, meant, *words_of(value)) or error.key != key
        assert isinstance(error, ValueError)
        assert error.key in str(error)
        assert error.key in {key, "workers", "max_workers"}  # a bound may be reported at its other end
    else:
        if isinstance(getattr(config, key), tuple):
            assert getattr(config, key) == words_of(value)
            return
        assert str(getattr(config, key)).lower() in {
            value.lower(),
            str(int(value)) if value.strip("-").isdigit() else "",
            str(float(value)) if isinstance(getattr(config, key), float) else "",
        }


@pytest.mark.parametrize(
    ("typed", "meant"), [("worker", "workers"), ("ssh_cdir", "ssh_cidr"), ("max_worker", "max_workers")]
)
def test_misspelled_key_is_rejected_with_suggestion(typed: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown key; did you mean {meant}\\?") as caught:
        build(**{typed: "x"})
    assert caught.value.key == typed


@pytest.mark.parametrize(
    ("values", "reachable"),
    [
        ({}, False),
        ({"ssh_cidr": "198.18.0.7/32"}, True),
        ({"ssh_prefix_lists": "pl-0123456789abcdef0"}, True),
        ({"ssh_access": "session-manager"}, True),
    ],
)
def test_master_is_reachable_from_a_network_or_by_session_manager(values: dict[str, str], reachable: bool) -> None:
    config = ClusterConfig.from_context({"cluster": values})
    assert config.is_reachable is reachable
    assert [caution.key for caution in cautions(config)] == ([] if reachable else ["ssh_cidr"])


def test_separate_context_value_overrides_cluster_object() -> None:
    config = ClusterConfig.from_context({"cluster": {"ssh_cidr": SSH_CIDR, "workers": 2}, "workers": "4"})
    assert config.workers == 4


def test_keys_of_the_cdk_are_ignored() -> None:
    context = {"cluster": {"ssh_cidr": SSH_CIDR}, "@aws-cdk/core:flag": True, "aws:cdk:bundling-stacks": ["**"]}
    assert ClusterConfig.from_context(context) == ClusterConfig(ssh_cidr=SSH_CIDR)


def test_cluster_must_be_an_object() -> None:
    with pytest.raises(ConfigError, match="must be a JSON object"):
        ClusterConfig.from_context({"cluster": [1]})


def test_configuration_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        build().workers = 3  # type: ignore[misc]  # that this is an error is the point


def test_file_and_context_give_the_same_configuration(tmp_path: Path) -> None:
    file = tmp_path / "cdk.json"
    file.write_text(json.dumps({"app": "x", "context": {"cluster": {"workers": 3}}}))
    assert ClusterConfig.from_file(file, {"ssh_cidr": SSH_CIDR[0]}) == build(workers=3)


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"context": 3}', "[" * 100_000])
def test_unreadable_file_is_reported(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "cdk.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=r"cdk\.json"):
        ClusterConfig.from_file(file)


def test_feature_flags_are_only_keys_of_the_cdk() -> None:
    """A cluster key next to `cluster` would override the same key of each project."""
    others = {"cluster": {"workers": 9}, "workers": 9, KEPT_IMAGES: {}, QUALIFIER: "mine", "ami:account=1": "ami-1"}
    flags = {"@aws-cdk/aws-iam:minimizePolicies": True, "@aws-cdk-containers/x:y": False}
    assert feature_flags(json.dumps({"app": "x", "context": {**others, **flags}})) == flags
