"""Images and zones: anything that would make a launch fail is reported first."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN, Subject
from cluster.doctor.nodes import floors_of_types, image, judge_image, judge_offering, offering
from stacks.images import Image
from tests.cluster.doctor.conftest import Examined, config_of

NOW = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)


LARGE = {"VolumeSize": 200}
FULL = {"VolumeSize": 97}


def described(**values: Any) -> dict[str, Any]:
    disk = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 8}}
    fine = {"State": "available", "Architecture": "x86_64", "Name": "al2023", "RootDeviceName": "/dev/xvda"}
    return {**fine, "BlockDeviceMappings": [disk], **values}


@pytest.mark.parametrize(
    ("image_id", "found", "state", "says"),
    [
        ("", None, FAIL, "parameter /image"),
        ("ami-1", None, FAIL, "not visible"),
        ("ami-1", described(State="pending"), FAIL, "pending"),
        ("ami-1", described(RootDeviceName="/dev/sda1"), FAIL, "second, empty volume"),
        ("ami-1", described(Architecture="arm64"), FAIL, "c5.2xlarge has"),
        ("ami-1", described(BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": LARGE}]), FAIL, "200 GiB"),
        ("ami-1", described(BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": FULL}]), WARN, "97 of 100 GiB"),
        ("ami-1", described(BlockDeviceMappings=[{"DeviceName": "/dev/sdb", "Ebs": LARGE}]), OK, "al2023"),
        ("ami-1", described(DeprecationTime="2026-01-02T00:00:00.000Z"), WARN, "since 2026-01-02"),
        ("ami-1", described(DeprecationTime="2027-01-02T00:00:00.000Z"), OK, "al2023"),
    ],
)  # fmt: skip
def test_an_image_must_be_there_and_fit_its_nodes(
    image_id: str, found: dict[str, Any] | None, state: str, says: str
) -> None:
    wanted = Image(parameter="/image", id="", root_device="/dev/xvda")
    judged = judge_image(config_of(), "worker", wanted, image_id, found, NOW)
    assert judged.state == state
    assert says in judged.what
    assert state == OK or judged.remedy


def test_an_image_must_fit_every_type_that_a_worker_may_be_of() -> None:
    config = config_of(worker_alternatives=("c7g.2xlarge",))
    wanted = Image(parameter="", id="ami-1", root_device="/dev/xvda")
    judged = judge_image(config, "worker", wanted, "ami-1", described(), NOW)
    assert (judged.state, "c7g.2xlarge has arm64" in judged.what) == (FAIL, True)
    assert judged.remedy == "set another worker_image_id"


def test_the_images_of_both_roles_are_looked_up(subject: Examined) -> None:
    found = list(image(subject(worker_image_parameter="/none")))
    assert [(each.check, each.state) for each in found] == [("master image", OK), ("worker image", FAIL)]
    by_id = list(image(subject(worker_image_id="ami-00000000", master_image_id="ami-00000000")))
    assert [each.what for each in by_id] == ["ami-00000000 is not visible to this account in this region"] * 2


def test_a_deprecated_image_that_can_be_launched_is_found(subject: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    who, asked = subject(), list[dict[str, Any]]()

    def describe(**given: Any) -> dict[str, Any]:
        asked.append(given)
        return {"Images": []}

    monkeypatch.setattr(who.aws.client("ec2"), "describe_images", describe)
    list(image(who))
    assert [each["IncludeDeprecated"] for each in asked] == [True]


def test_a_type_must_be_offered_in_every_zone_of_the_nodes() -> None:
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
def test_types_of_workers_that_together_are_offered_in_all_zones_are_a_drawback(
    subject: Examined, monkeypatch: pytest.MonkeyPatch, first: set[str], second: set[str], states: list[str]
) -> None:
    both = {"us-east-1a", "us-east-1b"}
    offered = {"c5.2xlarge": first, "m5.2xlarge": second, "t3.medium": both}
    monkeypatch.setattr("cluster.doctor.nodes.offers", lambda *_: offered)
    who = subject(availability_zones=2, zones=tuple(sorted(both)), worker_alternatives=("m5.2xlarge",))
    assert [each.state for each in offering(who)] == states


def test_fewer_zones_than_the_subnets_span_are_reported(subject: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.deploy.zones.all_zones", lambda _: ("us-east-1a",))
    first = next(iter(offering(subject(availability_zones=2))))
    assert (first.state, first.what) == (FAIL, "availability_zones = 2, but this account has only us-east-1a")


def test_other_zones_for_a_deployed_cluster_are_said_to_replace_its_subnets() -> None:
    judged = judge_offering("c5.large", ["us-east-1a"], {"us-east-1b"}, own=True, deployed=True)
    assert "which replaces the subnets and the nodes" in judged.remedy


def test_the_zones_are_chosen_ones_or_those_of_the_subnets(subject: Examined) -> None:
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


def test_what_has_no_published_figure_is_said_to_be_measured_and_not_judged() -> None:
    ((state, what),) = told(worker_instance_type="g4dn.xlarge")
    assert (state, "the allreduce is measured but has no minimum" in what) == (OK, True)
    ((state, what),) = told(worker_instance_type="g7e.2xlarge")
    assert (state, what.partition(" GPUs")[0]) == (
        WARN,
        "g7e.2xlarge: there is no published speed of RTX PRO Server 6000",
    )
