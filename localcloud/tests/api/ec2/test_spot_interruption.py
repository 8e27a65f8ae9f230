"""Spot instances are interrupted on command, after a notice. Their group replaces them."""

from __future__ import annotations

import datetime

import pytest

from api.templates import Client, Stacks, mixed, nodes
from localcloud.api.cloud import Cloud
from localcloud.api.ec2.spot_interruption import NotInterruptibleError


def test_notice_gives_termination_time_and_changes_nothing_else(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(mixed(2))
    victim, other = cloud.snapshot().instances
    cloud.interrupt(victim.id, 120)
    cloud.wait_for_change(0)
    now = {instance.id: instance for instance in cloud.snapshot().instances}
    ends = datetime.datetime.strptime(now[victim.id].ends_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)
    assert 110 < (ends - datetime.datetime.now(datetime.UTC)).total_seconds() <= 120
    assert now[other.id].ends_at == ""


def test_second_command_does_not_give_more_time(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(mixed(1))
    (victim,) = cloud.snapshot().instances
    cloud.interrupt(victim.id, 60)
    (first,) = cloud.snapshot().instances
    cloud.interrupt(victim.id, 6000)
    assert cloud.snapshot().instances == (first,)


def test_group_replaces_interrupted_spot_instance(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    stacks.create(mixed(2, base=1))
    spot = next(instance for instance in cloud.snapshot().instances if instance.spot)
    kept = next(instance for instance in cloud.snapshot().instances if not instance.spot)
    cloud.interrupt(spot.id, 0)
    assert cloud.wait_for_change(0)
    after = cloud.snapshot().instances
    assert spot.id not in {instance.id for instance in after}
    assert kept in after
    assert sorted(instance.spot for instance in after) == [False, True]
    (page,) = client("ec2").describe_instances(InstanceIds=[spot.id])["Reservations"]
    assert page["Instances"][0]["StateReason"]["Code"] == "Server.SpotInstanceTermination"


def test_instance_on_demand_is_never_interrupted(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(nodes(1))
    (instance,) = cloud.snapshot().instances
    with pytest.raises(NotInterruptibleError, match="only spot instances can be interrupted"):
        cloud.interrupt(instance.id, 0)
