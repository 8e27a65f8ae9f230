"""Replacing a worker: the right one is terminated, live runs keep their workers, and the new one is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given

from agent.spec.nodes import Node
from cluster.aws import instance_console, inventory
from cluster.aws.inventory import Inventory
from cluster.errors import DeepcdkError, NotReadyError, UsageError
from cluster.nodes import replace as replacing
from cluster.nodes.grow import GroupTask
from cluster.nodes.occupancy import Occupancy
from cluster.nodes.replace import find, wait_joined
from cluster.runs.supervisor_client import Supervisor
from cluster.session import Session
from cluster.ssh.master import Master
from tests.cluster.nodes.deployed_workers import AnsweringNodes
from tests.factories import make_instance, make_inventory, make_master, make_node
from tests.words import WORDS

A, B, C, N = "i-0000000a", "i-0000000b", "i-0000000c", "i-0000000d"


def nodes(**instance_ids: str) -> tuple[Node, ...]:
    """Return the master and these workers, given as `workerN`."""
    indices = ((int(name.removeprefix("worker")), found) for name, found in instance_ids.items())
    return (make_master(), *(make_node(index, instance_id=found) for index, found in indices))


def inventory_of(*instance_ids: str) -> Inventory:
    return make_inventory(instances=tuple(make_instance(id=found) for found in instance_ids))


TWO = inventory_of(A, B, C).instances


@pytest.mark.parametrize("text", ["worker2", "2", "deeplearning-worker2", " worker2 ", B])
def test_worker_is_found_by_name_number_or_instance_id(text: str) -> None:
    found, name = find(text, nodes(worker1=A, worker2=B), TWO)
    assert (found.id, name) == (B, "deeplearning-worker2")


@given(text=WORDS)
def test_any_text_is_a_worker_name_or_rejected(text: str) -> None:
    try:
        found, name = find(text, nodes(worker1=A, worker2=B), TWO)
    except UsageError:
        return
    number = name.removeprefix("deeplearning-worker")
    assert text.strip() in (found.id, name, f"worker{number}", number)


def test_worker_that_never_joined_is_found_by_its_instance() -> None:
    assert find(C, nodes(worker1=A), TWO)[1] == C


@pytest.mark.parametrize(
    ("text", "says"), [("worker9", f"must be one of worker1, worker2, {C}"), ("master", "is the master")]
)
def test_unknown_name_is_rejected(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find(text, nodes(worker1=A, worker2=B), TWO)


def test_cluster_without_workers_is_reported() -> None:
    with pytest.raises(UsageError, match="the cluster has no worker"):
        find("1", (), ())


@pytest.fixture
def task(session: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    session.loaded_inventory = inventory_of(A, B)
    session.aws = mock.Mock()
    monkeypatch.setattr(session, "nodes", lambda _: nodes(worker1=A, worker2=B))
    return session


def with_run(*hosts: str) -> Supervisor:
    """Return a supervisor that has a live run on these nodes."""
    supervisor = mock.MagicMock(spec=Supervisor)
    names = {"one": tuple(f"deeplearning-{host}" for host in hosts)} if hosts else {}
    supervisor.occupancy.return_value = Occupancy(hosts={"other": ("deeplearning-worker9",), **names})
    return cast(Supervisor, supervisor)


def replace(task: Session, supervisor: Supervisor, **flags: bool) -> replacing.Replacement:
    return replacing.replace(group_task(task, lambda _: None, supervisor=supervisor, **flags), "worker2")


def group_task(session: Session, report: Callable[[str], None], *, supervisor: Any = None, **flags: bool) -> GroupTask:
    """Return `fab replace` with a master that reports nothing."""
    session.supervisor = mock.Mock(return_value=supervisor)  # type: ignore[method-assign]
    return GroupTask(session=session, master=mock.Mock(), name="fab replace", report=report, **{"yes": True, **flags})


def ended(task: Session) -> list[Any]:
    client = cast(mock.Mock, task.aws).client.return_value
    return [call.kwargs for call in client.terminate_instance_in_auto_scaling_group.call_args_list]


def test_node_of_a_live_run_is_spared_unless_forced(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "wait_joined", lambda *_, **__: nodes(worker2=N)[1])
    supervisor = with_run("worker1", "worker2")
    with pytest.raises(DeepcdkError, match="run one is live on deeplearning-worker2") as caught:
        replace(task, supervisor)
    assert ("--force" in caught.value.remedy, ended(task)) == (True, [])
    done = replace(task, supervisor, force=True)
    assert (done.stopped_run, done.new_instance) == ("one", N)
    cast(mock.Mock, supervisor).stop.assert_called_once_with("one", 30.0)


def test_group_keeps_its_size_and_starts_replacement(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "wait_joined", lambda *_, **__: nodes(worker3=N)[1])
    done = replace(task, with_run("worker1"))
    assert ended(task) == [{"InstanceId": B, "ShouldDecrementDesiredCapacity": False}]
    assert str(done).startswith(f"deeplearning-worker2 ({B}) was replaced by deeplearning-worker3 ({N}) after ")


def test_no_node_is_terminated_without_answer(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(DeepcdkError, match=rf"replace deeplearning-worker2 \({B}, c5\.2xlarge\): data on its"):
        replace(task, with_run(), yes=False)
    assert ended(task) == []


def waited(
    task: Session,
    monkeypatch: pytest.MonkeyPatch,
    *looks: tuple[tuple[Node, ...], tuple[str, ...]],
    timeout_s: float,
    status: str = "Successful",
    failed_logins: int = 0,
) -> tuple[Node, list[str]]:
    """Wait for a replacement. Each look has the nodes in the master's list and the instances in EC2."""
    seen, reported = iter(looks), list[str]()
    instances: list[str] = []

    def read_nodes(_: Master) -> tuple[Node, ...]:
        listed, instances[:] = next(seen)
        return listed

    def refresh(*_: object) -> Inventory:
        return inventory_of(*instances)

    monkeypatch.setattr(replacing, "read_nodes", read_nodes)
    monkeypatch.setattr(GroupTask, "logins", AnsweringNodes(failed_logins))
    monkeypatch.setattr(inventory, "refresh", refresh)
    monkeypatch.setattr(instance_console, "read_console", lambda *_: "deepcdk: failed: mounting")
    client = cast(mock.Mock, task.aws).client.return_value
    client.describe_scaling_activities.return_value = {
        "Activities": [
            {"StatusCode": status, "StatusMessage": "no room", "Description": "Launching a new EC2 instance"}
        ]
    }
    node = wait_joined(group_task(task, reported.append), B, {A, B}, timeout_s=timeout_s)
    return node, reported


def test_replacement_is_complete_when_only_new_node_is_listed(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    node, reported = waited(
        task, monkeypatch,
        (nodes(worker1=A, worker2=B), (A,)),
        (nodes(worker1=A, worker2=B), (A, N)),
        (nodes(worker1=A, worker2=B, worker3=N), (A, N)),
        (nodes(worker1=A, worker3=N), (A, N)),
        timeout_s=60,
    )  # fmt: skip
    assert (node.name, node.instance_id) == ("deeplearning-worker3", N)
    assert reported == [
        "waiting for the Auto Scaling group to start a new instance",
        f"waiting for {N} to join",
        f"waiting for {B} to terminate",
    ]


def test_replacement_is_complete_when_master_can_log_in(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [(nodes(worker1=A, worker2=N), (A, N))] * 3
    node, reported = waited(task, monkeypatch, *looks, timeout_s=60, failed_logins=2)
    assert node.instance_id == N
    assert reported == ["waiting until the master can log in to deeplearning-worker2"]


def test_failed_launch_of_replacement_is_reported_with_reason(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = (nodes(worker1=A), (A,)), (nodes(worker1=A, worker3=N), (A, N))
    _, reported = waited(task, monkeypatch, *looks, timeout_s=60, status="Failed")
    assert reported == [
        "waiting for the Auto Scaling group to start a new instance; EC2 Auto Scaling retries after: no room",
    ]


def test_replacement_that_never_joins_is_reported_with_console(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotReadyError, match=f"still waiting for {N} to join") as caught:
        waited(task, monkeypatch, (nodes(worker1=A), (A, N)), timeout_s=0)
    assert "failed: mounting" in str(caught.value)
