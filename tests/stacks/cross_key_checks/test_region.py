"""Resources that a configuration names by ARN must be in the region of the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.cross_key_checks import check
from stacks.cross_key_checks.region import partition_of

TOPIC = "arn:{}:sns:{}:123456789012:ops"
KEY = "arn:aws:kms:{}:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
GROUP = "arn:aws:resource-groups:{}:123456789012:group/mine"
BOUNDARY = "arn:{}:iam::123456789012:policy/boundary"


def problems(region: str, **values: Any) -> list[tuple[str, str]]:
    config = ClusterConfig(ssh_cidr=("198.18.0.7/32",), alarms=True, **values)
    return [(problem.key, problem.rule) for problem in check(config, region)]


@pytest.mark.parametrize(
    ("key", "value"), [("alarm_topic", TOPIC.format("aws", "{}")), ("kms_key", KEY), ("capacity_reservation", GROUP)]
)
def test_values_with_region_must_match_region_of_cluster(key: str, value: str) -> None:
    theirs = value.format("eu-west-1")
    assert problems("us-east-1", **{key: theirs}) == [(key, "is in eu-west-1, but the cluster is in us-east-1")]
    assert problems("eu-west-1", **{key: theirs}) == problems("", **{key: theirs}) == []


def test_values_without_region_must_match_partition_of_cluster() -> None:
    china = {"permissions_boundary": BOUNDARY.format("aws-cn"), "flow_logs": "arn:aws-cn:s3:::logs"}
    rule = "is in partition aws-cn, but the cluster is in aws"
    assert problems("us-east-1", **china) == [("flow_logs", rule), ("permissions_boundary", rule)]
    assert problems("cn-north-1", **china) == []
    assert problems("us-gov-west-1", alarm_topic=TOPIC.format("aws", "us-gov-west-1")) == [
        ("alarm_topic", "is in partition aws, but the cluster is in aws-us-gov")
    ]


def test_ids_and_words_have_no_region() -> None:
    assert problems("us-east-1", capacity_reservation="cr-0123456789abcdef0", kms_key="create") == []


def test_partition_of_every_region_matches_aws() -> None:
    import botocore.session

    session = botocore.session.get_session()
    listed = {
        region: partition
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("ec2", partition_name=partition)
    }
    assert len(listed) > 30
    assert {region: partition_of(region) for region in listed} == listed


def test_zones_must_be_in_region_of_cluster() -> None:
    theirs = ("eu-west-1a",)
    assert problems("us-east-1", zones=theirs) == [("zones", "is in eu-west-1, but the cluster is in us-east-1")]
    assert problems("eu-west-1", zones=theirs) == problems("", zones=theirs) == []
