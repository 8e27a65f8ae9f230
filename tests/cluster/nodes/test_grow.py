"""Facts about growing the worker group: who is asked, what is set, and what is waited for."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.spec.nodes import Node
from cluster.aws import inventory, limits
from cluster.errors import DeepcdkError
from cluster.nodes import grow, worker_group
from cluster.session import Session
from cluster.ssh.master import Master
from tests.factories import make_inventory, make_nodes

NO_MASTER = Master(None, "ec2-user@198.18.1.2")
"""What none of these tests may reach."""


ensure_nodes = functools.partial(grow.ensure_nodes, task="fab train")


@contextlib.contextmanager
def hold(task: str, nodes: Mapping[str, str], *, every: bool = False) -> Iterator[None]:
    """Hold the group's size, which nobody else changes here."""
    assert (task, dict(nodes), every) == ("fab train", {}, False)
    yield


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"cluster": {"workers": 2}}}))
    return tmp_path


@pytest.fixture
def task(project: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session whose cluster has two workers, of unknown price."""
    monkeypatch.setattr("pathlib.Path.home", lambda: project)
    made = Session(project, ["ready_timeout_min=1"])
    made.loaded_inventory = make_inventory(2)
    monkeypatch.setattr(inventory, "refresh", lambda *_: make_inventory(2))
    monkeypatch.setattr(limits, "wait_until_allowed", lambda *_: None)
    monkeypatch.setattr(made, "supervisor", lambda _: SimpleNamespace(hold=hold))
    monkeypatch.setattr(made.prices, "per_hour", lambda kinds, wait_s: dict.fromkeys(kinds))
    return made


def test_enough_nodes_are_taken_as_they_are(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_group, "read_nodes", lambda _: make_nodes(2))
    assert ensure_nodes(task, NO_MASTER, 2, yes=False, report=lambda _: None) == make_nodes(2)


def test_growth_is_asked_for_with_its_price(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_group, "read_nodes", lambda _: make_nodes(2))
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(DeepcdkError, match=r"from 2 to 4 nodes: 2 more c5\.2xlarge, price unknown"):
        ensure_nodes(task, NO_MASTER, 4, yes=False, report=lambda _: None)


def test_growth_is_done_and_waited_for_after_consent(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[int] = []
    reported: list[str] = []
    monkeypatch.setattr(worker_group, "read_nodes", lambda _: make_nodes(2))
    monkeypatch.setattr(worker_group, "resize", lambda aws, stack, nodes: grown.append(nodes))

    monkeypatch.setattr(worker_group, "wait_ready", lambda *_, **__: make_nodes(4))
    assert ensure_nodes(task, NO_MASTER, 4, yes=True, report=reported.append) == make_nodes(4)
    assert grown == [4]
    assert reported == ["growing the worker group from 2 to 4 nodes (c5.2xlarge, price unknown)"]


class Group:
    """A worker group whose size others change while a question stands: each answer is followed by the next size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: int, *after_answers: int) -> None:
        self.size, self.sizes = first, list(after_answers)
        self.asked: list[str] = []
        self.set: list[int] = []
        self.released = 0
        monkeypatch.setattr(inventory, "refresh", lambda *_: make_inventory(self.size))
        monkeypatch.setattr(grow, "confirm", self._confirm)
        monkeypatch.setattr(limits, "wait_until_allowed", self._wait)
        monkeypatch.setattr(worker_group, "resize", lambda aws, stack, nodes: self.set.append(nodes))
        monkeypatch.setattr(worker_group, "read_nodes", lambda _: make_nodes(2))
        monkeypatch.setattr(worker_group, "wait_ready", lambda *_, **__: make_nodes(4))

    def _confirm(self, question: str, *, yes: bool) -> None:
        self.asked.append(question)

    def _wait(self, *_: object) -> None:
        self.released += 1
        self.size = self.sizes.pop(0) if self.sizes else self.size


def test_a_group_that_another_laptop_grew_meanwhile_is_not_shrunk(
    task: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    group = Group(monkeypatch, 2, 8)
    assert ensure_nodes(task, NO_MASTER, 4, yes=False, report=reported.append) == make_nodes(4)
    assert (len(group.asked), group.set) == (1, [])
    assert "another machine has grown the worker group to 8 nodes; nothing is left to start" in reported


def test_a_group_that_another_laptop_grew_in_part_is_raised_by_the_rest(
    task: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    group = Group(monkeypatch, 2, 3)
    ensure_nodes(task, NO_MASTER, 4, yes=False, report=reported.append)
    assert (len(group.asked), group.set) == (1, [4])
    assert any(line.startswith("growing the worker group from 3 to 4 nodes") for line in reported)


def test_a_group_that_another_laptop_shrank_is_asked_for_again_with_its_price(
    task: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    group = Group(monkeypatch, 2, 1)
    monkeypatch.setattr(task.prices, "per_hour", lambda kinds, wait_s: dict.fromkeys(kinds, 1.0))
    ensure_nodes(task, NO_MASTER, 4, yes=False, report=reported.append)
    assert [question.partition(":")[2] for question in group.asked] == [
        " 2 more c5.2xlarge, price $2.000/h more.",
        " 3 more c5.2xlarge, price $3.000/h more.",
    ]
    assert group.set == [4]
    assert "another machine has set the worker group to 1 nodes: 3 would start, not 2" in reported
    assert group.released == 2


def test_the_first_question_is_asked_of_the_group_as_it_is_and_not_as_it_was_before_the_push(
    task: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(monkeypatch, 3)
    ensure_nodes(task, NO_MASTER, 4, yes=False, report=lambda _: None)
    assert "from 3 to 4 nodes: 1 more" in group.asked[0]


def test_fewer_nodes_are_told_of_with_what_becomes_of_the_others(
    task: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    asked: list[int] = []
    monkeypatch.setattr(worker_group, "read_nodes", lambda _: make_nodes(2))
    monkeypatch.setattr(worker_group, "resize", lambda *_: None)

    def wait_ready(*_: object, least: int, **__: object) -> tuple[Node, ...]:
        asked.append(least)
        return make_nodes(3)

    monkeypatch.setattr(worker_group, "wait_ready", wait_ready)
    assert ensure_nodes(task, NO_MASTER, 4, yes=True, report=reported.append, least=9) == make_nodes(3)
    assert asked == [4]
    assert "3 of 4 workers came" in reported[-1]
    assert "fab scale --nodes 3" in reported[-1]
