"""Shrinking: idle nodes with the highest numbers are terminated first, without replacement."""

from __future__ import annotations

import dataclasses

import pytest

from cluster.aws import inventory
from cluster.aws.client import Aws
from cluster.aws.inventory import Instance
from cluster.errors import NotReadyError
from cluster.nodes.shrink import BusyNodesError, Removal, choose, remaining, terminate, wait_gone
from tests.cluster.nodes.deployed_workers import ListingMaster, start_workers
from tests.factories import make_instance, make_inventory, make_nodes, make_stack, nodes_text

STACK = make_stack()
NODES = make_nodes(12)
TWELVE = make_inventory(12).instances


def names(leavers: tuple[Removal, ...]) -> list[str]:
    return [leaver.name.removeprefix("deeplearning-") for leaver in leavers]


@pytest.mark.parametrize(
    ("instances", "busy", "wanted", "gone"),
    [
        (TWELVE, (), 9, ["worker12", "worker11", "worker10"]),
        ((*TWELVE, make_instance(99)), (), 11, [make_instance(99).id, "worker12"]),  # it never joined
        (TWELVE, ("deeplearning-worker12", "deeplearning-worker11"), 10, ["worker10", "worker9"]),
    ],
)
def test_unjoined_instances_are_removed_first_then_highest_free_numbers(
    instances: tuple[Instance, ...], busy: tuple[str, ...], wanted: int, gone: list[str]
) -> None:
    assert names(choose(instances, NODES, {"one": busy}, wanted, force=False)) == gone


def test_nodes_of_live_runs_are_kept_without_consent() -> None:
    busy = {"one": ["deeplearning-worker1", "deeplearning-worker2"]}
    with pytest.raises(BusyNodesError, match="would take nodes from run one") as caught:
        choose(TWELVE, NODES, busy, 1, force=False)
    assert "--nodes 2" in caught.value.remedy
    assert names(choose(TWELVE, NODES, busy, 1, force=True))[-1] == "worker2"


def test_terminating_instances_do_not_count() -> None:
    ending = [make_instance(2, state="shutting-down"), make_instance(3, lifecycle="Terminating:Wait")]
    assert remaining(make_inventory(1, instances=(TWELVE[0], *ending))) == (TWELVE[0],)


@pytest.fixture
def group(aws: Aws) -> list[str]:
    """Start a group of three workers; return their ids."""
    return start_workers(aws, 3)


def test_chosen_instance_is_terminated_without_replacement(aws: Aws, group: list[str]) -> None:
    terminate(aws, STACK, inventory.refresh(aws, STACK), [Removal(instance_id=group[1], name="deeplearning-worker2")])
    found = inventory.refresh(aws, STACK)
    assert (found.desired_workers, {i.id for i in remaining(found)}) == (2, {group[0], group[2]})


def test_size_set_meanwhile_by_another_laptop_is_kept(aws: Aws, group: list[str]) -> None:
    before = dataclasses.replace(inventory.refresh(aws, STACK), desired_workers=5)
    aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=4)
    terminate(aws, STACK, before, [Removal(instance_id=group[2], name="deeplearning-worker3")])
    found = inventory.refresh(aws, STACK)
    assert (found.desired_workers, len(remaining(found))) == (3, 3)
    assert {group[0], group[1]} < {i.id for i in remaining(found)}


def test_worker_that_left_meanwhile_is_not_terminated_again(aws: Aws, group: list[str]) -> None:
    before = inventory.refresh(aws, STACK)
    leavers = [Removal(instance_id=i, name=i) for i in group[1:]]
    terminate(aws, STACK, before, leavers[:1])
    terminate(aws, STACK, before, leavers)
    found = inventory.refresh(aws, STACK)
    assert (found.desired_workers, {i.id for i in remaining(found)}) == (1, {group[0]})


def test_wait_ends_when_registry_has_removed_the_node(aws: Aws, group: list[str], slept: list[float]) -> None:
    gone = [Removal(instance_id="i-00000002", name="deeplearning-worker2")]
    reported: list[str] = []
    master = ListingMaster(nodes_text(NODES[:2]), nodes_text(NODES[:1]))
    nodes = wait_gone(aws, master, STACK, gone, report=reported.append)
    assert ([node.name for node in nodes], reported) == (["deeplearning-worker1"], ["nodes still terminating: 1"])


def test_node_that_does_not_terminate_is_reported(aws: Aws, group: list[str]) -> None:
    gone = [Removal(instance_id=group[0], name="deeplearning-worker1")]
    with pytest.raises(NotReadyError, match="deeplearning-worker1 still exist after 0 s"):
        wait_gone(aws, ListingMaster(""), STACK, gone, report=lambda _: None, timeout_s=0)
