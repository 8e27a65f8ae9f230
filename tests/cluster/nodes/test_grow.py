"""Growing the worker group: the question, the new size, and the wait."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from agent.spec.nodes import Node
from cluster.aws import inventory, worker_limits
from cluster.errors import ConnectionFailedError
from cluster.nodes import grow, worker_group
from cluster.nodes.grow import GroupTask
from cluster.session import Session
from cluster.ssh.master import Master
from tests.cluster.nodes.deployed_workers import AnsweringNodes, ListingMaster
from tests.factories import make_inventory, make_nodes, nodes_text


def ensure_nodes(session: Session, wanted: int, *, yes: bool, report: Callable[[str], None], least: int = 0) -> Any:
    """Let `fab train` provide this many workers; no test may reach the master."""
    master = Master(None, "ec2-user@198.18.1.2")
    task = GroupTask(session=session, master=master, name="fab train", yes=yes, report=report)
    return grow.ensure_nodes(task, wanted, least=least)


@contextlib.contextmanager
def hold(task: str, nodes: Mapping[str, str], *, every: bool = False) -> Iterator[None]:
    """Hold the size of the group; in this test no other task changes it."""
    assert (task, dict(nodes), every) == ("fab train", {}, False)
    yield


@pytest.fixture
def task(session: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session with a cluster of two workers of unknown price."""
    session.loaded_inventory = make_inventory(2)
    monkeypatch.setattr(inventory, "refresh", lambda *_: make_inventory(2))
    monkeypatch.setattr(worker_limits, "wait_until_allowed", lambda *_: None)
    monkeypatch.setattr(session, "supervisor", lambda _: SimpleNamespace(hold=hold))
    monkeypatch.setattr(session, "push_agent", lambda _: "agent")
    monkeypatch.setattr(session.prices, "per_hour", lambda kinds, wait_s: dict.fromkeys(kinds))
    return session


def test_group_with_enough_nodes_is_not_changed(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_group, "read_nodes", lambda _: make_nodes(2))
    assert ensure_nodes(task, 2, yes=False, report=lambda _: None) == make_nodes(2)


class Group:
    """A worker group that others resize during a question: each answer is followed by the next size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: int, *after_answers: int) -> None:
        self.size, self.sizes = first, list(after_answers)
        self.asked: list[str] = []
        self.set: list[int] = []
        self.released = 0
        monkeypatch.setattr(inventory, "refresh", lambda *_: make_inventory(self.size))
        monkeypatch.setattr(grow, "confirm", self._confirm)
        monkeypatch.setattr(worker_limits, "wait_until_allowed", self._wait)
        monkeypatch.setattr(worker_group, "resize", lambda aws, stack, nodes: self.set.append(nodes))
        monkeypatch.setattr(worker_group, "read_nodes", lambda _: make_nodes(2))
        monkeypatch.setattr(worker_group, "wait_ready", lambda *_, **__: make_nodes(4))

    def _confirm(self, question: str, *, yes: bool) -> None:
        self.asked.append(question)

    def _wait(self, *_: object) -> None:
        self.released += 1
        self.size = self.sizes.pop(0) if self.sizes else self.size


FROM_2 = "grow the worker group from 2 to 4 nodes: 2 more c5.2xlarge, price $2.000/h more."


@pytest.mark.parametrize(
    ("first", "later", "asked", "resized", "reported"),
    [
        (2, 2, [FROM_2], [4], "growing the worker group from 2 to 4 nodes: 2 more c5.2xlarge, price $2.000/h more"),
        (2, 3, [FROM_2], [4], "growing the worker group from 3 to 4 nodes: 1 more c5.2xlarge, price $1.000/h more"),
        (2, 8, [FROM_2], [], "another machine has grown the worker group to 8 nodes; no more nodes are needed"),
        (
            2,
            1,
            [FROM_2, "grow the worker group from 1 to 4 nodes: 3 more c5.2xlarge, price $3.000/h more."],
            [4],
            "another machine has changed the size of the worker group to 1, so 3 nodes would start instead of 2",
        ),
        (
            3,  # changed since the push
            3,
            ["grow the worker group from 3 to 4 nodes: 1 more c5.2xlarge, price $1.000/h more."],
            [4],
            "growing the worker group from 3 to 4 nodes: 1 more c5.2xlarge, price $1.000/h more",
        ),
    ],
)
def test_group_grows_after_consent_and_never_shrinks(
    task: Session,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    later: int,
    asked: list[str],
    resized: list[int],
    reported: str,
) -> None:
    lines, group = list[str](), Group(monkeypatch, first, later)
    monkeypatch.setattr(task.prices, "per_hour", lambda kinds, wait_s: dict.fromkeys(kinds, 1.0))
    assert ensure_nodes(task, 4, yes=False, report=lines.append) == make_nodes(4)
    assert (group.asked, group.set, group.released) == (asked, resized, len(asked))
    assert reported in lines


def test_unknown_price_is_shown_as_unknown(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(monkeypatch, 2)
    ensure_nodes(task, 4, yes=False, report=lambda _: None)
    assert group.asked == ["grow the worker group from 2 to 4 nodes: 2 more c5.2xlarge, price unknown."]


def test_start_with_fewer_nodes_is_announced(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []
    asked: list[int] = []
    monkeypatch.setattr(worker_group, "read_nodes", lambda _: make_nodes(2))
    monkeypatch.setattr(worker_group, "resize", lambda *_: None)

    def wait_ready(*_: object, least: int, **__: object) -> tuple[Node, ...]:
        asked.append(least)
        return make_nodes(3)

    monkeypatch.setattr(worker_group, "wait_ready", wait_ready)
    assert ensure_nodes(task, 4, yes=True, report=reported.append, least=9) == make_nodes(3)
    assert asked == [4]
    assert "3 of 4 workers have started" in reported[-1]
    assert "fab scale --nodes 3" in reported[-1]


def test_deployment_ends_when_the_master_can_log_in_to_the_workers(
    task: Session, monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    reported: list[str] = []
    master = ListingMaster(nodes_text(make_nodes(2)))
    monkeypatch.setattr(task, "connect", lambda: contextlib.nullcontext(master))
    monkeypatch.setattr(grow, "Logins", lambda directory: AnsweringNodes(failures=2))
    monkeypatch.setattr(worker_group, "refresh", lambda *_: make_inventory(2))
    assert grow.await_logins(task, make_inventory(2), reported.append) == make_inventory(2)
    assert reported == [
        "nodes ready: 0 of 2 (2 instances, 0 s); the master cannot log in yet",
        "nodes ready: 2 of 2",
    ]


def test_deployment_without_a_login_on_the_master_ends_with_a_warning(
    task: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise ConnectionFailedError("no answer within 10 s", where="ec2-user@198.18.1.2", remedy="check your network")

    monkeypatch.setattr(task, "connect", refuse)
    assert grow.await_logins(task, make_inventory(2), lambda _: None) == make_inventory(2)
    said = " ".join(capsys.readouterr().err.split())
    assert "warning: the workers have booted, but whether the master can log in to them is unknown: " in said
    assert "no answer within 10 s" in said
