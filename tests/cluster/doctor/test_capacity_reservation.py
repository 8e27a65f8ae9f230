"""Reservations must fit the instances that are launched."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from cluster.doctor.account import budget
from cluster.doctor.capacity_reservation import judge_reservation, reservation
from cluster.doctor.finding import FAIL, OK, UNKNOWN, WARN
from tests.cluster.doctor.conftest import Examined, config_of

ID = "cr-0123456789abcdef0"
BEGINS = datetime.datetime(2026, 12, 1, 11, 30, tzinfo=datetime.UTC)


def described(**values: Any) -> dict[str, Any]:
    fine = {"State": "active", "InstanceType": "c5.2xlarge", "AvailabilityZone": "us-east-1a"}
    return {**fine, "AvailableInstanceCount": 16, "TotalInstanceCount": 16, **values}


@pytest.mark.parametrize(
    ("found", "state", "says"),
    [
        (None, FAIL, "does not exist in this account"),
        (described(State="scheduled", StartDate=BEGINS), FAIL, "starts at 2026-12-01 11:30 UTC"),
        (described(State="expired"), FAIL, "is expired"),
        (described(InstanceType="c5.large"), FAIL, "is for c5.large"),
        (described(AvailabilityZone="us-east-1d"), FAIL, "the workers would be in us-east-1a"),
        (described(AvailableInstanceCount=1), FAIL, "but workers is 2"),
        (described(AvailableInstanceCount=3), WARN, "but max_workers is 16"),
        (described(), OK, "16 of 16 c5.2xlarge free"),
    ],
)
def test_reservation_must_fit_the_workers(found: dict[str, Any] | None, state: str, says: str) -> None:
    judged = judge_reservation(config_of(capacity_reservation=ID), found, ["us-east-1a"], deployed=False)
    assert judged.state == state
    assert says in judged.what
    assert state == OK or judged.remedy


def test_cluster_without_workers_is_deployed_before_its_reservation_begins() -> None:
    config = config_of(capacity_reservation=ID, workers=0)
    there = described(State="scheduled", StartDate=BEGINS)
    assert judge_reservation(config, there, ["us-east-1a"], deployed=False).state == WARN


@pytest.mark.parametrize(
    ("state", "remedy"),
    [("scheduled", "wait until it is active, then deploy"), ("expired", "set capacity_reservation to an active")],
)
def test_fix_depends_on_whether_reservation_can_become_active(state: str, remedy: str) -> None:
    config = config_of(capacity_reservation=ID)
    found = judge_reservation(config, described(State=state), ["us-east-1a"], deployed=False)
    assert found.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("free", "workers", "remedy"),
    [
        (1, 2, "set workers to 1 or less"),
        (0, 2, "wait until instances of the reservation are free, or set workers = 0"),
        (3, 2, "set max_workers to 3"),
        (0, 0, "before you start workers, wait until instances of the reservation are free"),
    ],
)
def test_fix_for_full_reservation_is_a_possible_number(free: int, workers: int, remedy: str) -> None:
    config = config_of(capacity_reservation=ID, workers=workers)
    there = described(AvailableInstanceCount=free)
    assert judge_reservation(config, there, ["us-east-1a"], deployed=False).remedy == remedy


@pytest.mark.parametrize(
    ("keys", "deployed", "remedy"),
    [
        ({}, False, "set zones = us-east-1d"),
        ({}, True, "set zones = us-east-1d, which replaces the subnets and the nodes of the deployed cluster"),
        ({"vpc_id": "vpc-0123456789abcdef0"}, False, "name a subnet of us-east-1d in private_subnet_ids"),
    ],
)
def test_fix_for_other_zone_depends_on_vpc(keys: dict[str, Any], deployed: bool, remedy: str) -> None:
    there = described(AvailabilityZone="us-east-1d")
    config = config_of(capacity_reservation=ID, **keys)
    assert judge_reservation(config, there, ["us-east-1a"], deployed=deployed).remedy == remedy


def test_workers_already_in_reservation_need_no_capacity() -> None:
    full = described(AvailableInstanceCount=0)
    config = config_of(capacity_reservation=ID)
    assert judge_reservation(config, full, ["us-east-1a"], deployed=True).state == OK


def test_only_requested_checks_run_and_a_group_is_unknown(subject: Examined) -> None:
    assert [*reservation(subject()), *budget(subject())] == []
    group = "arn:aws:resource-groups:us-east-1:123456789012:group/mine"
    (found,) = reservation(subject(capacity_reservation=group))
    assert (found.state, "in the EC2 console" in found.remedy) == (UNKNOWN, True)
