"""The worker group: it grows as requested, and a node that does not join is reported with its console."""

from __future__ import annotations

import dataclasses

import pytest
from botocore.exceptions import ClientError

from cluster.aws import instance_console, inventory
from cluster.aws.client import Aws
from cluster.aws.stack import Stack
from cluster.errors import AwsError, NoAnswerError, NotReadyError
from cluster.nodes import worker_group
from cluster.nodes.worker_group import (
    OverMaximumError,
    ShrunkGroupError,
    check_maximum,
    keep_workers_of_all_zones,
    read_nodes,
    resize,
    wait_ready,
)
from cluster.terminal.status_line import warn
from tests.cluster.nodes.deployed_workers import AnsweringNodes, ListingMaster, start_workers
from tests.factories import make_inventory, make_node, make_stack, nodes_text

STACK = make_stack()


def listing(*instance_ids: str) -> str:
    """Return a nodes file with workers on these instances, in order."""
    return nodes_text(make_node(index, instance_id=found) for index, found in enumerate(instance_ids, start=1))


@pytest.fixture
def workers(aws: Aws) -> list[str]:
    """Start a group of two workers; return their ids."""
    return start_workers(aws, 2)


def want(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Set the group's desired number of workers in our view, because moto starts all workers immediately."""

    def refresh(aws: Aws, stack: Stack) -> inventory.Inventory:
        return dataclasses.replace(inventory.refresh(aws, stack), desired_workers=size)

    monkeypatch.setattr(worker_group, "refresh", refresh)


def test_group_grows_to_requested_size(aws: Aws, workers: list[str]) -> None:
    resize(aws, STACK, 4)
    assert len(inventory.refresh(aws, STACK).workers) == 4


def test_balancing_the_zones_of_a_group_is_suspended_once(aws: Aws, workers: list[str]) -> None:
    scaling = aws.client("autoscaling")
    zones = ["us-east-1a", "us-east-1b"]
    scaling.update_auto_scaling_group(AutoScalingGroupName=STACK.worker_group, AvailabilityZones=zones)
    reported: list[str] = []
    for _ in range(2):
        keep_workers_of_all_zones(aws, inventory.refresh(aws, STACK), reported.append)
    (line,) = reported
    assert "suspended AZRebalance of" in line
    groups = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[STACK.worker_group])["AutoScalingGroups"]
    assert [process["ProcessName"] for process in groups[0]["SuspendedProcesses"]] == ["AZRebalance"]


def test_group_of_one_zone_is_unchanged(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "client", lambda *_: pytest.fail("nothing is to be asked"))
    keep_workers_of_all_zones(aws, make_inventory(2), lambda line: pytest.fail(line))


def test_without_permission_to_suspend_it_a_warning_is_printed(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    def suspend_processes(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "SuspendProcesses")

    monkeypatch.setattr(aws.client("autoscaling"), "suspend_processes", suspend_processes)
    reported: list[str] = []
    keep_workers_of_all_zones(aws, make_inventory(2, rebalances_zones=True), reported.append)
    (line,) = reported
    assert line.startswith("warning: EC2 Auto Scaling may terminate workers of a run")
    assert line.endswith(
        "AZRebalance could not be suspended: AWS denied the request: no; do: request this permission, or use another "
        "profile"
    )


def refuse(aws: Aws, monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    """Make EC2 Auto Scaling reject every size, which moto does not support."""

    def set_desired_capacity(**_: object) -> None:
        raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "SetDesiredCapacity")

    monkeypatch.setattr(aws.client("autoscaling"), "set_desired_capacity", set_desired_capacity)


def test_size_above_maximum_is_rejected_with_both_numbers(
    aws: Aws, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(aws, monkeypatch, "New SetDesiredCapacity value 9 is above max value 4 for the AutoScalingGroup.")
    with pytest.raises(
        OverMaximumError, match="9 workers are wanted, but the deployed cluster allows at most 4"
    ) as caught:
        resize(aws, STACK, 9)
    assert "max_workers to 9" in caught.value.remedy


def test_rejected_size_is_reported_even_if_aws_no_longer_answers(
    aws: Aws, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise NoAnswerError("the AWS API does not answer")

    refuse(aws, monkeypatch, "the group is being deleted")
    monkeypatch.setattr(worker_group, "refresh", silent)
    with pytest.raises(AwsError, match="the group is being deleted"):
        resize(aws, STACK, 9)


def test_any_other_rejected_size_is_reported_with_awss_message(
    aws: Aws, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(aws, monkeypatch, "AutoScalingGroup name not found - null")
    with pytest.raises(AwsError, match="name not found"):
        resize(aws, STACK, 3)


def test_waiting_ends_as_soon_as_enough_nodes_are_listed(aws: Aws, workers: list[str], slept: list[float]) -> None:
    one, both = listing(workers[0]), listing(*workers)
    reported: list[str] = []
    nodes = wait_ready(
        aws, ListingMaster("", one, one, both), STACK, 2, logins=AnsweringNodes(), timeout_s=60, report=reported.append
    )
    assert [node.instance_id for node in nodes] == workers
    assert reported == [
        "nodes ready: 0 of 2 (2 instances, 0 s)",
        "nodes ready: 1 of 2 (2 instances, 1 s)",
        "nodes ready: 2 of 2",
    ]


def test_listed_node_is_ready_once_the_master_can_log_in(aws: Aws, workers: list[str], slept: list[float]) -> None:
    master, reported = ListingMaster(listing(*workers)), list[str]()
    logins = AnsweringNodes(failures=2)
    assert len(wait_ready(aws, master, STACK, 2, logins=logins, timeout_s=60, report=reported.append)) == 2
    assert reported == [
        "nodes ready: 0 of 2 (2 instances, 0 s); the master cannot log in yet",
        "nodes ready: 2 of 2",
    ]


def test_node_without_logins_is_reported_with_ssh_message(
    aws: Aws, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_console, "read_console", lambda *_: "no network")
    master, logins = ListingMaster(listing(*workers)), AnsweringNodes(failures=1)
    with pytest.raises(NotReadyError, match=f"0 of 2 nodes are ready after 0 s; missing: {workers[0]}") as caught:
        wait_ready(aws, master, STACK, 2, logins=logins, timeout_s=0, report=lambda _: None)
    assert "the master cannot log in: Permission denied\n" in caught.value.consoles[next(iter(caught.value.consoles))]


def test_node_that_does_not_join_is_reported_with_console(
    aws: Aws, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_console, "read_console", lambda _, instance_id: f"{instance_id} booting\nmount failed")
    with pytest.raises(NotReadyError, match=f"1 of 2 nodes are ready after 0 s; missing: {workers[1]}") as caught:
        wait_ready(
            aws,
            ListingMaster(listing(workers[0])),
            STACK,
            2,
            logins=AnsweringNodes(),
            timeout_s=0,
            report=lambda _: None,
        )
    assert "mount failed" in str(caught.value)
    assert caught.value.remedy == (
        f"wait, or replace the instance: `fab replace {workers[1]}`; or train on the workers that are ready, with "
        "--nodes 1"
    )


def test_missing_nodes_are_reported_without_permission_for_consoles_and_activities(
    aws: Aws, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "Denied")

    monkeypatch.setattr(aws.client("autoscaling"), "describe_scaling_activities", deny)
    monkeypatch.setattr(aws.client("ec2"), "get_console_output", deny)
    master = ListingMaster(listing(workers[0]))
    with pytest.raises(NotReadyError, match="1 of 3 nodes are ready") as caught:
        wait_ready(aws, master, STACK, 3, logins=AnsweringNodes(), timeout_s=0, report=lambda _: None)
    assert "(the console cannot be read: AWS denied the request: no)" in str(caught.value)
    assert "(its activities cannot be read: AWS denied the request: no)" in str(caught.value)


def test_fewer_workers_suffice_only_after_timeout(aws: Aws, workers: list[str], slept: list[float]) -> None:
    one = listing(workers[0])
    master = ListingMaster(one, listing(*workers))
    assert (
        len(wait_ready(aws, master, STACK, 2, logins=AnsweringNodes(), timeout_s=60, report=lambda _: None, least=1))
        == 2
    )
    assert (
        len(
            wait_ready(
                aws, ListingMaster(one), STACK, 2, logins=AnsweringNodes(), timeout_s=0, report=lambda _: None, least=1
            )
        )
        == 1
    )
    with pytest.raises(NotReadyError):
        wait_ready(
            aws, ListingMaster(""), STACK, 2, logins=AnsweringNodes(), timeout_s=0, report=lambda _: None, least=1
        )


def test_instances_that_never_started_are_explained_by_the_groups_last_activity(aws: Aws, workers: list[str]) -> None:
    with pytest.raises(NotReadyError, match="2 of 3 nodes") as caught:
        wait_ready(
            aws, ListingMaster(listing(*workers)), STACK, 3, logins=AnsweringNodes(), timeout_s=0, report=lambda _: None
        )
    assert "workers has started 2 of 3" in str(caught.value)


def test_failed_launch_is_reported_once_while_group_retries(
    aws: Aws, workers: list[str], slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    want(monkeypatch, 3)
    failed = {"Description": "Launching a new EC2 instance", "StatusCode": "Failed"}
    failed["StatusMessage"] = "We currently do not have sufficient capacity"
    asked: list[float] = []

    def describe_scaling_activities(**_: object) -> object:
        asked.append(sum(slept))
        return {"Activities": [failed]}

    monkeypatch.setattr(aws.client("autoscaling"), "describe_scaling_activities", describe_scaling_activities)
    reported: list[str] = []
    both = listing(*workers)
    with pytest.raises(NotReadyError, match="2 of 3 nodes") as caught:
        wait_ready(aws, ListingMaster(both), STACK, 3, logins=AnsweringNodes(), timeout_s=25, report=reported.append)
    assert reported == [
        "nodes ready: 2 of 3 (2 instances, 0 s); EC2 Auto Scaling retries after: "
        "We currently do not have sufficient capacity; do: wait, because AWS's capacity changes "
        "within minutes or hours; or set more types in worker_alternatives, other zones or "
        "another region, and run `fab up`"
    ]
    assert caught.value.remedy.startswith("wait, because AWS's capacity changes")
    assert asked == [0, 10, 20, 25], "seldom while it waits, and once at the end"


def test_waiting_stops_if_another_laptop_shrinks_the_group(aws: Aws, workers: list[str], slept: list[float]) -> None:
    with pytest.raises(ShrunkGroupError, match=r"was set to 2 nodes in the meantime.* waits for 3") as caught:
        wait_ready(
            aws,
            ListingMaster(listing(*workers)),
            STACK,
            3,
            logins=AnsweringNodes(),
            timeout_s=900,
            report=lambda _: None,
        )
    assert (sum(slept), "repeat the command" in caught.value.remedy) == (2, True)
    both = listing(*workers)
    joined = ListingMaster(both, both, listing(*workers, "i-000000cc"))
    assert len(wait_ready(aws, joined, STACK, 3, logins=AnsweringNodes(), timeout_s=900, report=lambda _: None)) == 3


def test_without_permission_for_activities_the_wait_continues(
    aws: Aws, workers: list[str], slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe_scaling_activities(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeScalingActivities")

    monkeypatch.setattr(aws.client("autoscaling"), "describe_scaling_activities", describe_scaling_activities)
    want(monkeypatch, 3)
    one, reported = listing(workers[0]), list[str]()
    master = ListingMaster(one, one, listing(*workers, "i-000000cc"))
    assert len(wait_ready(aws, master, STACK, 3, logins=AnsweringNodes(), timeout_s=60, report=reported.append)) == 3
    assert reported[0] == "nodes ready: 1 of 3 (2 instances, 0 s)"


def test_invalid_line_excludes_its_node_and_is_reported_on_stderr_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warn.cache_clear()
    master = ListingMaster(
        listing("i-000000aa") + "deeplearning-worker2 10.0.64.5\\'$(touch\x1b[2Jx)\\' i-000000bb 1\n"
    )
    for _ in range(3):
        assert [node.name for node in read_nodes(master)] == ["deeplearning-worker1"]
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n"), "\x1b" in told.err) == ("", 1, False)
    assert told.err.startswith("warning: line 2 of /opt/deeplearning/nodes on the master is ignored, and its node ")
    assert "`fab replace INSTANCE_ID` replaces it" in told.err


def test_maximum_number_of_nodes_comes_from_the_deployed_cluster() -> None:
    deployed = make_inventory(group_maximum=64)
    check_maximum(64, deployed, 16)
    with pytest.raises(OverMaximumError) as caught:
        check_maximum(65, deployed, 16)
    assert str(caught.value).splitlines() == [
        "65 workers are wanted, but the deployed cluster allows at most 64; max_workers in cdk.json is 16",
        "  do: give 64 or fewer, or set max_workers to 65 in cdk.json and run `fab up`",
    ]
    with pytest.raises(OverMaximumError) as caught:
        check_maximum(65, deployed, 128)
    assert caught.value.remedy == "give 64 or fewer, or deploy cdk.json with `fab up`"
