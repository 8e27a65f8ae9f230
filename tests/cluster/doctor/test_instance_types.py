"""Zones must offer the instance types, and runs have minimum speeds for their GPUs."""

from __future__ import annotations

import pytest

from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN, Subject
from cluster.doctor.instance_types import floors_of_types, judge_offering, offering
from tests.cluster.doctor.conftest import Examined, config_of


def test_type_must_be_offered_in_every_zone_of_the_nodes() -> None:
    zones = ["us-east-1a", "us-east-1b"]
    assert judge_offering("c5.large", zones, set(zones), own=True).state == OK
    missing = judge_offering("p5.48xlarge", zones, {"us-east-1b", "us-east-1c"}, own=True)
    assert missing.state == FAIL
    assert "not offered in us-east-1a" in missing.what
    assert "set zones to zones that offer it (us-east-1b, us-east-1c)" in missing.remedy
    assert "or region" in judge_offering("p5.48xlarge", zones, set(), own=True).remedy
    assert "name subnets" in judge_offering("p5.48xlarge", zones, {"us-east-1b"}, own=False).remedy
    assert judge_offering("c5.large", [], set(), own=False).state == UNKNOWN
    assert judge_offering("c5.large", zones, set(), own=True, spare=True).state == WARN


@pytest.mark.parametrize(
    ("first", "second", "states"),
    [({"us-east-1a"}, {"us-east-1b"}, [WARN, WARN, OK]), ({"us-east-1a"}, set(), [FAIL, FAIL, OK])],
)
def test_types_offered_only_together_in_all_zones_are_a_warning(
    subject: Examined, monkeypatch: pytest.MonkeyPatch, first: set[str], second: set[str], states: list[str]
) -> None:
    both = {"us-east-1a", "us-east-1b"}
    offered = {"c5.2xlarge": first, "m5.2xlarge": second, "t3.medium": both}
    monkeypatch.setattr("cluster.doctor.instance_types.offers", lambda *_: offered)
    who = subject(availability_zones=2, zones=tuple(sorted(both)), worker_alternatives=("m5.2xlarge",))
    assert [each.state for each in offering(who)] == states


def test_fewer_zones_than_the_subnets_span_are_reported(subject: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.deploy.zones.all_zones", lambda _: ("us-east-1a",))
    first = next(iter(offering(subject(availability_zones=2))))
    assert (first.state, first.what) == (FAIL, "availability_zones = 2, but this account has only us-east-1a")


def test_changed_zones_of_deployed_cluster_are_reported_to_replace_subnets() -> None:
    judged = judge_offering("c5.large", ["us-east-1a"], {"us-east-1b"}, own=True, deployed=True)
    assert "which replaces the subnets and the nodes" in judged.remedy


def test_zones_are_configured_or_those_of_subnets(subject: Examined) -> None:
    who = subject(availability_zones=2)
    assert who.zones == ("us-east-1a", "us-east-1b")
    assert [each.state for each in offering(who)] == [OK, OK]
    ec2 = who.aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    made = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24", AvailabilityZone="us-east-1d")["Subnet"]
    assert subject(vpc_id=vpc, private_subnet_ids=(made["SubnetId"],)).zones == ("us-east-1d",)
    assert subject(availability_zones=2, zones=("us-east-1c", "us-east-1b")).zones == ("us-east-1c", "us-east-1b")


def told(**keys: object) -> list[tuple[str, str]]:
    subject = Subject(aws=None, config=config_of(**keys), project=None, home=None, key="")  # type: ignore[arg-type]  # unused
    return [(finding.state, finding.what) for finding in floors_of_types(subject)]


def test_only_types_with_gpus_have_minimum_speeds() -> None:
    ((state, what),) = told(worker_instance_type="p5.48xlarge", efa=True)
    assert state == OK
    assert "each H100 multiplies at 494 TFLOP/s or more (NVIDIA H100 data sheet" in what
    assert "an allreduce over all GPUs of two nodes reaches 200 GB/s or more" in what
    ((_, over_tcp),) = told(worker_instance_type="p4d.24xlarge")
    assert "reaches 0.312 GB/s or more" in over_tcp
    assert told(worker_instance_type="c5.2xlarge") == []


def test_values_without_published_minimum_are_measured_but_not_checked() -> None:
    ((state, what),) = told(worker_instance_type="g4dn.xlarge")
    assert (state, "the allreduce is measured but has no minimum" in what) == (OK, True)
    ((state, what),) = told(worker_instance_type="g7e.2xlarge")
    assert (state, what.partition(" GPUs")[0]) == (
        WARN,
        "g7e.2xlarge: there is no published speed of RTX PRO Server 6000",
    )
