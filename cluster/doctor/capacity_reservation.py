"""Checks of a capacity reservation."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from cluster.deploy.zones import describe_reservation
from cluster.doctor.finding import FAIL, OK, REPLACES, UNKNOWN, WARN, Finding, Subject, finding
from stacks.config import ClusterConfig

_WAITING: Final = ("scheduled", "assessing", "pending", "payment-pending", "delayed")
"""States of a reservation that may still become active."""


def reservation(subject: Subject) -> Iterator[Finding]:
    """Check a capacity reservation: it is active, in the workers' zone and of their type. Before the deployment, it
    must also have enough free instances.

    Yields nothing without a reservation. The members of a group of reservations are not checked. Raises AwsError.
    """
    config = subject.config
    wanted = config.capacity_reservation
    if not wanted:
        return
    if not wanted.startswith("cr-"):
        what = f"{wanted} is a group of reservations; its members are not checked"
        remedy = "compare their zones, types and free instances with the workers in the EC2 console"
        yield finding("capacity reservation", UNKNOWN, what, remedy)
        return
    found = describe_reservation(subject.aws, wanted)
    yield judge_reservation(config, found, subject.zones, deployed=subject.deployed)


def judge_reservation(
    config: ClusterConfig, described: Mapping[str, Any] | None, zones: Collection[str], *, deployed: bool
) -> Finding:
    """Judge the configured reservation. It fails if it is missing, not active, of another type or zone, or too small.

    It warns if it has room for `workers` only, or starts later and no workers are configured. `described` is its entry
    of DescribeCapacityReservations, None if it does not exist. `zones` are the cluster's. With `deployed`, its free
    instances are not compared, because the cluster already uses some.
    """
    wanted = config.capacity_reservation

    found = functools.partial(finding, "capacity reservation")

    if described is None:
        return found(
            FAIL,
            f"{wanted} does not exist in this account and region",
            "set capacity_reservation to a reservation that exists there, or leave it empty",
        )
    if described["State"] != "active":
        begins = described.get("StartDate")
        when = f", starts at {begins:%Y-%m-%d %H:%M} UTC" if begins and described["State"] == "scheduled" else ""
        what = f"{wanted} is {described['State']}{when}"
        if described["State"] == "scheduled" and not config.workers:
            return found(WARN, what, "start workers when it is active")
        if described["State"] in _WAITING:
            return found(FAIL, what, "wait until it is active, then deploy")
        return found(FAIL, what, "set capacity_reservation to an active reservation, or leave it empty")
    kind, zone = described["InstanceType"], described["AvailabilityZone"]
    if kind not in config.worker_types:
        what = f"{wanted} is for {kind}, but the workers are {' or '.join(config.worker_types)}"
        return found(FAIL, what, f"set worker_instance_type = {kind}")
    if zone not in zones:
        remedy = (
            f"name a subnet of {zone} in private_subnet_ids"
            if config.vpc_id
            else f"set zones = {zone}{REPLACES if deployed else ''}"
        )
        return found(FAIL, f"{wanted} is in {zone}, but the workers would be in {', '.join(sorted(zones))}", remedy)
    free = int(described["AvailableInstanceCount"])
    what = f"{wanted}: {free} of {described['TotalInstanceCount']} {kind} free in {zone}"
    wait = "wait until instances of the reservation are free"
    if not deployed and free < config.workers:
        fewer = f"set workers to {free} or less" if free else f"{wait}, or set workers = 0"
        return found(FAIL, f"{what}, but workers is {config.workers}", fewer)
    if not deployed and free < config.max_workers:
        fewer = f"set max_workers to {free}" if free else f"before you start workers, {wait}"
        return found(WARN, f"{what}, but max_workers is {config.max_workers}", fewer)
    return found(OK, what)
