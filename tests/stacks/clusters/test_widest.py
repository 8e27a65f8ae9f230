"""The largest possible cluster stays within the limits of CloudFormation, IAM, EC2 and SSM."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any, Final

import pytest

from stacks.config import ClusterConfig
from stacks.cross_key_checks import check
from stacks.user_data import USER_DATA_LIMIT
from tests.stacks.clusters.eight import CLUSTERS
from tests.stacks.clusters.synthesis import PREFLIGHT, Inspected, inspect
from tests.stacks.clusters.template import Template

TEMPLATE_BYTES: Final = 1_000_000
RESOURCES: Final = 500
INLINE_CHARACTERS: Final = 10_240
MANAGED_CHARACTERS: Final = 6_144
PARAMETER_CHARACTERS: Final = 4_096
# Values of the longest region, partition and stack name.
_REFERENCES: Final = {
    "AWS::Partition": "aws-us-gov",
    "AWS::Region": "ap-southeast-1",
    "AWS::AccountId": "123456789012",
    "AWS::StackId": f"arn:aws-us-gov:cloudformation:ap-southeast-1:123456789012:stack/{'n' * 32}/{'0' * 36}",
}
_NAME: Final = "n" * 63


def resolve(value: Any) -> Any:
    """Return a value of a template with every function replaced by a text of the maximum length of its result."""
    if isinstance(value, list):
        return [resolve(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "Fn::Join" in value:
        glue, parts = value["Fn::Join"]
        return glue.join(resolve(part) for part in parts)
    if "Ref" in value:
        return _REFERENCES.get(value["Ref"], _NAME)
    if "Fn::GetAtt" in value:
        return f"arn:aws-us-gov:logs:ap-southeast-1:123456789012:log-group:{_NAME}"
    return {key: resolve(each) for key, each in value.items()}


def characters(document: Any) -> int:
    """Return the size of a policy as IAM counts it, without whitespace."""
    return len(json.dumps(resolve(document), separators=(",", ":")))


@pytest.fixture(scope="module")
def config() -> ClusterConfig:
    buckets = tuple(f"{n:03}".rjust(63, "b") for n in range(67))
    mount = "/mnt/" + "m" * 249
    return CLUSTERS["everything"].config(
        name="n" * 32,
        tags=tuple(f"{n:0100}={'v' * 99}" for n in range(40)),
        data_buckets=buckets,
        checkpoint_buckets=tuple(reversed(buckets)),
        wheelhouse=f"s3://{buckets[0]}/{'w' * 900}",
        alarm_emails=tuple(f"{n}{'a' * 50}@{'b' * 60}.example.com" for n in range(100)),
        efs_mount=f"{mount}e",
        fsx_mount=f"{mount}f",
        scratch_mount=f"{mount}s",
        login_user="u" * 32,
        permissions_boundary=f"arn:aws:iam::123456789012:policy/{'b' * 128}",
    )


@pytest.fixture(scope="module")
def inspected(config: ClusterConfig) -> Inspected:
    return inspect(config)


@pytest.fixture
def template(inspected: Inspected) -> Template:
    return inspected.template


def test_widest_configuration_is_accepted(config: ClusterConfig) -> None:
    assert list(check(config)) == []


def test_widest_template_satisfies_rules_of_aws(inspected: Inspected) -> None:
    assert inspected.findings[PREFLIGHT] == []


def test_widest_template_is_within_size_limit_of_cloudformation(template: Template) -> None:
    text = json.dumps(template.document, indent=1)  # as the CDK writes it
    assert 900_000 < len(text.encode()) < TEMPLATE_BYTES
    assert len(template.resources) < RESOURCES


def test_widest_policies_are_within_size_limits_of_iam(template: Template) -> None:
    managed = [characters(each["PolicyDocument"]) for each in template.of("AWS::IAM::ManagedPolicy").values()]
    assert 6_000 < max(managed) <= MANAGED_CHARACTERS
    inline: Counter[str] = Counter()  # the policies of a role count together
    for each in template.of("AWS::IAM::Policy").values():
        inline.update({role["Ref"]: characters(each["PolicyDocument"]) for role in each["Roles"]})
    assert 2_000 < max(inline.values()) <= INLINE_CHARACTERS


def test_widest_user_data_and_parameters_are_within_size_limits(template: Template) -> None:
    for group in ("MasterGroup", "WorkerGroup"):
        assert len(template.user_data(group).encode()) < USER_DATA_LIMIT - 128
    for parameter in template.of("AWS::SSM::Parameter").values():
        assert len(resolve(parameter["Value"])) < PARAMETER_CHARACTERS


def test_one_more_character_in_tags_is_rejected(config: ClusterConfig) -> None:
    with pytest.raises(ValueError, match="8001 characters"):
        dataclasses.replace(config, tags=(*config.tags[:-1], f"{config.tags[-1]}v"))
