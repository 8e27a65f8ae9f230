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
def test_unjoined_instances_go_first_then_the_highest_numbers_without_a_run(
    instances: tuple[Instance, ...], busy: tuple[str, ...], wanted: int, gone: list[str]
) -> None:
    assert names(choose(instances, NODES, {"one": busy}, wanted, force=False)) == gone


def test_without_consent_no_node_of_a_live_run_goes() -> None:
    busy = {"one": ["deeplearning-worker1", "deeplearning-worker2"]}
    with pytest.raises(BusyNodesError, match="would take nodes from run one") as caught:
        choose(TWELVE, NODES, busy, 1, force=False)
    assert "--nodes 2" in caught.value.remedy
    assert names(choose(TWELVE, NODES, busy, 1, force=True))[-1] == "worker2"


def test_instances_that_are_ending_do_not_count() -> None:
    ending = [make_instance(2, state="shutting-down"), make_instance(3, lifecycle="Terminating:Wait")]
    assert remaining(make_inventory(1, instances=(TWELVE[0], *ending))) == (TWELVE[0],)


@pytest.fixture
def group(aws: Aws) -> list[str]:
    """Start a group of three workers; return their ids."""
    return start_workers(aws, 3)


def test_the_chosen_instance_ends_and_none_takes_its_place(aws: Aws, group: list[str]) -> None:
    terminate(aws, STACK, inventory.refresh(aws, STACK), [Removal(instance_id=group[1], name="deeplearning-worker2")])
    found = inventory.refresh(aws, STACK)
    assert (found.desired_workers, {i.id for i in remaining(found)}) == (2, {group[0], group[2]})


def test_a_size_that_another_laptop_has_set_meanwhile_holds(aws: Aws, group: list[str]) -> None:
    before = dataclasses.replace(inventory.refresh(aws, STACK), desired_workers=5)
    aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=4)
    terminate(aws, STACK, before, [Removal(instance_id=group[2], name="deeplearning-worker3")])
    found = inventory.refresh(aws, STACK)
    assert (found.desired_workers, len(remaining(found))) == (3, 3)
    assert {group[0], group[1]} < {i.id for i in remaining(found)}


def test_a_worker_that_has_left_meanwhile_is_not_ended_again(aws: Aws, group: list[str]) -> None:
    before = inventory.refresh(aws, STACK)
    leavers = [Removal(instance_id=i, name=i) for i in group[1:]]
    terminate(aws, STACK, before, leavers[:1])
    terminate(aws, STACK, before, leavers)
    found = inventory.refresh(aws, STACK)
    assert (found.desired_workers, {i.id for i in remaining(found)}) == (1, {group[0]})


def test_waiting_ends_once_the_registry_has_forgotten_the_node(aws: Aws, group: list[str], slept: list[float]) -> None:
    gone = [Removal(instance_id="i-00000002", name="deeplearning-worker2")]
    reported: list[str] = []
    master = ListingMaster(nodes_text(NODES[:2]), nodes_text(NODES[:1]))
    nodes = wait_gone(aws, master, STACK, gone, report=reported.append)
    assert ([node.name for node in nodes], reported) == (["deeplearning-worker1"], ["nodes still terminating: 1"])


def test_a_node_that_does_not_go_is_named(aws: Aws, group: list[str]) -> None:
    gone = [Removal(instance_id=group[0], name="deeplearning-worker1")]
    with pytest.raises(NotReadyError, match="deeplearning-worker1 still exist after 0 s"):
        wait_gone(aws, ListingMaster(""), STACK, gone, report=lambda _: None, timeout_s=0)
