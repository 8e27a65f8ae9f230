"""Images must exist and fit the nodes."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from cluster.doctor.finding import FAIL, OK, WARN
from cluster.doctor.images import image, judge_image
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
def test_image_must_exist_and_fit_its_nodes(image_id: str, found: dict[str, Any] | None, state: str, says: str) -> None:
    wanted = Image(parameter="/image", id="", root_device="/dev/xvda")
    judged = judge_image(config_of(), "worker", wanted, image_id, found, NOW)
    assert judged.state == state
    assert says in judged.what
    assert state == OK or judged.remedy


def test_image_must_fit_every_possible_worker_type() -> None:
    config = config_of(worker_alternatives=("c7g.2xlarge",))
    wanted = Image(parameter="", id="ami-1", root_device="/dev/xvda")
    judged = judge_image(config, "worker", wanted, "ami-1", described(), NOW)
    assert (judged.state, "c7g.2xlarge has arm64" in judged.what) == (FAIL, True)
    assert judged.remedy == "set another worker_image_id"


def test_images_of_both_roles_are_looked_up(subject: Examined) -> None:
    found = list(image(subject(worker_image_parameter="/none")))
    assert [(each.check, each.state) for each in found] == [("master image", OK), ("worker image", FAIL)]
    by_id = list(image(subject(worker_image_id="ami-00000000", master_image_id="ami-00000000")))
    assert [each.what for each in by_id] == ["ami-00000000 is not visible to this account in this region"] * 2


def test_deprecated_but_launchable_image_is_found(subject: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    who, asked = subject(), list[dict[str, Any]]()

    def describe(**given: Any) -> dict[str, Any]:
        asked.append(given)
        return {"Images": []}

    monkeypatch.setattr(who.aws.client("ec2"), "describe_images", describe)
    list(image(who))
    assert [each["IncludeDeprecated"] for each in asked] == [True]
