"""Scaling: the questions before, the actions after consent, and the final report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cluster.aws import inventory
from cluster.errors import DeepcdkError, LiveRunError
from cluster.nodes import scale as scaling
from cluster.nodes import shrink, worker_group
from cluster.nodes.grow import GroupTask
from cluster.nodes.occupancy import Occupancy
from cluster.nodes.scale import ScaleResult, scale
from cluster.nodes.shrink import BusyNodesError
from cluster.runs.supervisor_client import Supervisor
from cluster.session import Session
from cluster.ssh.master import Master
from tests.factories import make_inventory, make_nodes

NODES = make_nodes(3)


class Live(Supervisor):
    """A supervisor with this run live on these nodes; `begins` becomes live after the first request."""

    def __init__(self, run_id: str = "", *hosts: str, begins: str = "") -> None:
        self.run_id, self.hosts, self.begins, self.stopped = run_id, hosts, begins, ""
        self.others: dict[str, tuple[str, ...]] = {}
        self.waiting: list[dict[str, Any]] = []
        self.holds: list[tuple[str, ...]] = []

    def occupancy(self) -> Occupancy:
        now, self.run_id = self.run_id, self.run_id or self.begins
        return Occupancy(hosts={**({now: self.hosts} if now else {}), **self.others})

    def runs(self) -> list[dict[str, Any]]:
        return self.waiting

    @contextlib.contextmanager
    def hold(self, task: str, nodes: Mapping[str, str], *, every: bool = False) -> Iterator[None]:
        self.holds.append(("begins", *nodes))
        yield
        self.holds.append(("ends", *nodes))

    def stop(self, run_id: str, grace_s: float) -> dict[str, Any]:
        self.stopped += run_id
        self.others.pop(run_id, None)
        self.run_id = "" if run_id == self.run_id else self.run_id
        return {}


class Cluster:
    """Three workers at $1.5/h each, in a group that changes size immediately."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session, self.patch = session, monkeypatch
        self.session.loaded_inventory = make_inventory(3)
        self.ended: list[str] = []
        self.size = 3
        self.asked: list[str] = []
        self.lines: list[str] = []
        monkeypatch.setattr(self.session, "nodes", lambda master: NODES)
        monkeypatch.setattr(worker_group, "read_nodes", lambda master: NODES)
        monkeypatch.setattr(self.session.prices, "per_hour", lambda kinds, wait_s: dict.fromkeys(kinds, 1.5))
        monkeypatch.setattr(shrink, "terminate", lambda aws, stack, found, leavers: self._end(leavers))
        monkeypatch.setattr(shrink, "wait_gone", lambda *_, report: NODES[: 3 - len(self.ended)])
        monkeypatch.setattr(inventory, "refresh", lambda *_: make_inventory(self.size - len(self.ended)))

    def become_while_asked(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        """Let another laptop set this size during the first question."""

        def confirm(question: str, *, yes: bool) -> None:
            self.asked.append(question)
            self.size = size

        monkeypatch.setattr(scaling, "confirm", confirm)

    def _end(self, leavers: tuple[shrink.Removal, ...]) -> None:
        self.ended = [leaver.name for leaver in leavers]

    def scale(self, wanted: int, supervisor: Live, *, yes: bool = True, force: bool = False) -> ScaleResult:
        self.patch.setattr(self.session, "supervisor", lambda _: supervisor)
        master, report = Master(None, ""), self.lines.append
        task = GroupTask(session=self.session, master=master, name="fab scale", yes=yes, force=force, report=report)
        return scale(task, wanted)


@pytest.fixture
def cluster(session: Session, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(session, monkeypatch)


def test_shrinking_is_confirmed_with_names_and_price(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(DeepcdkError, match=r"from 3 to 1 nodes by terminating .*worker3, .*worker2, \$3\.000/h less"):
        cluster.scale(1, Live(), yes=False)
    assert cluster.ended == []


def test_after_consent_the_newest_workers_are_removed_and_the_difference_is_reported(cluster: Cluster) -> None:
    live = Live()
    scaled = cluster.scale(2, live)
    assert cluster.ended == ["deeplearning-worker3"]
    gone = "deeplearning-worker3"
    assert live.holds == [("begins",), ("begins", gone), ("ends",), ("ends", gone)], "the size first, its nodes longer"
    assert str(scaled) == "workers: 3 -> 2 (-deeplearning-worker3), instances together $4.500/h -> $3.000/h"


def test_nodes_started_meanwhile_are_confirmed_before_removal(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.become_while_asked(monkeypatch, 5)
    cluster.scale(2, Live(), yes=False)
    assert ["from 3 to 2 nodes by terminating deeplearning-worker3" in cluster.asked[0], len(cluster.asked)] == [
        True,
        2,
    ]
    assert "from 5 to 2 nodes by terminating i-00000004, i-00000005, deeplearning-worker3" in cluster.asked[1]
    assert "the worker group has changed in the meantime: it has 5 nodes" in cluster.lines
    assert cluster.ended == ["i-00000004", "i-00000005", "deeplearning-worker3"]


def test_group_shrunk_by_another_laptop_is_not_shrunk_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.become_while_asked(monkeypatch, 2)
    scaled = cluster.scale(2, Live(), yes=False)
    assert (cluster.ended, scaled.removed, scaled.after) == ([], (), 2)
    assert "the worker group has already shrunk to 2 nodes in the meantime; no node was terminated" in cluster.lines
    assert "()" not in str(scaled)


def test_group_is_lowered_from_its_current_size(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[int] = []
    monkeypatch.setattr(worker_group, "resize", lambda aws, stack, nodes: lowered.append(nodes))
    as_it_began = make_inventory(3, desired_workers=6)
    cluster.session.loaded_inventory = as_it_began
    cluster.scale(3, Live())
    assert lowered == [], "the three that it has been set to since are there"


def test_queued_run_with_too_few_nodes_is_reported_before_shrinking(cluster: Cluster) -> None:
    live = Live()
    live.waiting = [
        {"run_id": "two", "state": "queued", "hosts": ["a", "b"]},
        {"run_id": "one", "state": "queued", "hosts": ["a"]},
        {"run_id": "old", "state": "failed", "hosts": ["a", "b", "c"]},
    ]
    cluster.scale(1, live)
    warnings = [line for line in cluster.lines if line.startswith("warning")]
    assert warnings == [
        "warning: run two is queued for 2 nodes, and fails if they are missing at its turn; "
        "to remove it from the queue: `fab stop --run two`"
    ]
    assert cluster.lines.index(warnings[0]) < cluster.lines.index(
        "terminating deeplearning-worker3, deeplearning-worker2"
    )


def test_same_size_changes_nothing(cluster: Cluster) -> None:
    assert str(cluster.scale(3, Live())) == "workers: 3, as before"
    assert (cluster.ended, cluster.lines) == ([], [])


def test_live_run_keeps_its_nodes(cluster: Cluster) -> None:
    live = Live("one", "deeplearning-worker2", "deeplearning-worker3")
    with pytest.raises(BusyNodesError):
        cluster.scale(1, live)
    assert (cluster.ended, live.stopped) == ([], "")
    cluster.scale(2, live)
    assert (cluster.ended, live.stopped) == (["deeplearning-worker1"], "")


def test_force_stops_run_before_removing_its_nodes(cluster: Cluster) -> None:
    live = Live("one", "deeplearning-worker2", "deeplearning-worker3")
    scaled = cluster.scale(1, live, force=True)
    assert (live.stopped, scaled.stopped_runs) == ("one", ("one",))
    assert cluster.ended == ["deeplearning-worker1", "deeplearning-worker3"]


def test_only_runs_on_removed_nodes_are_stopped(cluster: Cluster) -> None:
    live = Live("one", "deeplearning-worker1")
    live.others = {"two": ("deeplearning-worker2",), "six": ("deeplearning-worker3",)}
    with pytest.raises(BusyNodesError) as refused:
        cluster.scale(1, live)
    assert refused.value.what == (
        "shrinking to 1 workers would take nodes from run two, which is live on deeplearning-worker2, "
        "and from run six, which is live on deeplearning-worker3"
    )
    scaled = cluster.scale(1, live, force=True)
    assert scaled.stopped_runs == ("two", "six")
    assert (live.run_id, cluster.ended) == ("one", ["deeplearning-worker3", "deeplearning-worker2"])


def test_run_started_during_question_is_kept(cluster: Cluster) -> None:
    hosts = [node.name for node in NODES]
    with pytest.raises(LiveRunError, match="two"):
        cluster.scale(1, Live("", *hosts, begins="two"), force=True)
    assert cluster.ended == []
