"""A new cluster uses the zones that offer its instance types, and a deployed cluster keeps its zones."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.aws.client import Aws
from cluster.deploy import zones
from cluster.errors import AwsError
from tests.cluster.doctor.conftest import config_of

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
OFFERED = {"t3.medium": {A, B, C}, "c5.2xlarge": {B, C}, "m5.2xlarge": {A}}


def template(*names: Any) -> dict[str, Any]:
    """Return a template with a public and a private subnet in each of these zones."""
    subnets = {
        f"{kind}{number}": {"Type": "AWS::EC2::Subnet", "Properties": {"AvailabilityZone": zone}}
        for kind in ("Public", "Private")
        for number, zone in enumerate(names)
    }
    return {"Resources": {**subnets, "Topic": {"Type": "AWS::SNS::Topic"}}}


@pytest.mark.parametrize(
    ("keys", "kept", "chosen"),
    [
        ({}, (), (B,)),
        ({"availability_zones": 2}, (), (B, C)),
        ({"availability_zones": 2}, (C,), (C, B)),
        ({"worker_alternatives": ("m5.2xlarge",)}, (), (A,)),  # each zone has one of the two: first by name
        ({"worker_instance_type": "m5.2xlarge"}, (), (A,)),
        ({"worker_instance_type": "m5.2xlarge", "availability_zones": 2}, (), (A, B)),  # the doctor rejects this
    ],
)
def test_zones_that_offer_the_types_come_first(keys: dict[str, Any], kept: tuple[str, ...], chosen: tuple[str]) -> None:
    assert zones.choose(config_of(**keys), (A, B, C), OFFERED, kept) == chosen


def test_deployed_cluster_keeps_the_zones_of_its_template(aws: Aws) -> None:
    deployed = template(C)
    assert zones.of(aws, config_of(), deployed) == (C,)
    assert zones.are_ours(config_of(), deployed)
    assert zones.of(aws, config_of(availability_zones=2), deployed) == (C, A)
    assert zones.of(aws, config_of(), template(C, B)) == (C,)


def test_zones_chosen_by_cloudformation_or_user_are_not_set(aws: Aws) -> None:
    by_function = template({"Fn::Select": [0, {"Fn::GetAZs": ""}]})
    assert not zones.are_ours(config_of(), by_function)
    assert zones.of(aws, config_of(), by_function) == (A,)
    assert not zones.are_ours(config_of(zones=(B,)), {})
    assert not zones.are_ours(config_of(vpc_id="vpc-0123456789abcdef0"), {})
    assert zones.are_ours(config_of(), {})


@pytest.mark.parametrize(
    ("keys", "offered", "reserved", "chosen"),
    [
        ({}, {}, C, (C,)),
        ({}, {"c5.2xlarge": {B}}, C, (C,)),
        ({"availability_zones": 2}, {"c5.2xlarge": {A, C}, "m5.2xlarge": {B}}, "", (A, C)),
        ({"availability_zones": 2}, {"c5.2xlarge": {C}, "m5.2xlarge": {A, B}}, "", (A, B)),
    ],
)
def test_zone_of_the_reservation_comes_first_and_several_zones_share_a_type(
    keys: dict[str, Any], offered: dict[str, set[str]], reserved: str, chosen: tuple[str]
) -> None:
    config = config_of(worker_alternatives=("m5.2xlarge",), **keys)
    assert zones.choose(config, (A, B, C), {**OFFERED, **offered}, reserved=reserved) == chosen


def test_zones_are_chosen_without_permission_to_see_reservation(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(capacity_reservation="cr-0123456789abcdef0")
    monkeypatch.setattr(zones, "describe_reservation", lambda *_: {"AvailabilityZone": C})
    assert zones.of(aws, config, {}) == (C,)

    def refused(*_: object) -> None:
        raise AwsError("not for you")

    monkeypatch.setattr(zones, "describe_reservation", refused)
    assert zones.of(aws, config, {}) == (A,)


def test_zones_without_a_default_subnet_are_chosen_last(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    for subnet in ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": [A]}])["Subnets"]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    assert zones.usual(aws)[0] == B
    assert zones.all_zones(aws) == (*zones.usual(aws), A)
    assert zones.of(aws, config_of(), {}) == (B,)
    by_function = template({"Fn::Select": [0, {"Fn::GetAZs": ""}]})
    assert zones.of(aws, config_of(), by_function) == (B,)
