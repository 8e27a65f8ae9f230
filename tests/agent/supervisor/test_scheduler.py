"""The scheduler: the nodes of a waiting run that starts, and when the scheduler gives up."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.runs import liveness
from agent.runs import stored_state as states
from agent.runs.node_claims import Claim, LiveRunError, Runs
from agent.spec.nodes import Node
from agent.spec.submission import Submission
from agent.supervisor import scheduler
from agent.supervisor.free_nodes import on_free_nodes
from agent.supervisor.scheduler import run
from agent.supervisor.submit import enqueue
from tests.factories import (
    AGENT,
    PAYLOAD,
    abandon,
    make_master,
    make_node,
    make_nodes,
    make_spec,
    make_state,
    nodes_text,
)


def listed(*workers: Node) -> str:
    """Return a nodes file with the master and these workers."""
    return nodes_text([make_master(), *workers])


def submission(efs: Path, count: int) -> Submission:
    """Return run `one` on this many workers."""
    return Submission(spec=make_spec(run_id="one", efs_mount=str(efs), hosts=make_nodes(count)))


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Return the path of the nodes file, next to the trees that the runs name."""
    for tree in (AGENT, PAYLOAD):
        (tmp_path / "payloads" / tree).mkdir(parents=True)
    return tmp_path / "nodes"


def test_run_keeps_its_nodes_while_they_are_the_same_instances(nodes: Path) -> None:
    nodes.write_text(listed(*make_nodes(3)))
    spec = make_spec(hosts=make_nodes(3)[1:])
    assert on_free_nodes(spec, [], pytest.fail, str(nodes)) == spec


def test_replaced_node_is_used_with_requested_slots(nodes: Path) -> None:
    another = [make_node(index, instance_id=f"i-{index:07x}b", slots=8) for index in (1, 3)]
    nodes.write_text(listed(*another))
    again = on_free_nodes(make_spec(hosts=make_nodes(2, slots=4)), [], pytest.fail, str(nodes))
    assert [(host.name, host.instance_id, host.slots) for host in again.hosts] == [
        ("deeplearning-worker1", "i-0000001b", 4), ("deeplearning-worker3", "i-0000003b", 4),
    ]  # fmt: skip


def test_malformed_line_excludes_only_its_node_and_is_reported(nodes: Path) -> None:
    nodes.write_bytes(
        listed(*make_nodes(2)).encode() + b"deeplearning-worker3 \xff i-0000003a 1 ens5 us-east-1a x86_64\n"
    )
    told: list[str] = []
    spec = make_spec(hosts=make_nodes(2))
    assert on_free_nodes(spec, [], told.append, str(nodes)) == spec
    assert [r"line 4 of" in text and r"address = '\\xff'" in text for text in told] == [True]


def test_scheduler_logs_invalid_line_only_once(
    tmp_path: Path, nodes: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    nodes.write_text(listed(make_node(1)) + "deeplearning-worker2 $(id) i-0000002a 1 ens5 us-east-1a x86_64\n")
    runs, seen = Runs(root=tmp_path / "runs"), []
    enqueue(runs, submission(tmp_path, 2))

    def pause(_: float) -> None:
        seen.append(runs["one"].effective_state().reason)
        if len(seen) == 3:
            monkeypatch.setattr(scheduler, "NODES_PATIENCE_S", 0.0)

    monkeypatch.setattr("agent.supervisor.scheduler.time.sleep", pause)
    run(runs, nodes_path=str(nodes))
    assert capfd.readouterr().err.count("address = '$(id)': must be an IPv4 address") == 1
    assert len(seen) == 3


def test_run_without_nodes_fails_with_the_reason_and_the_queue_continues(
    tmp_path: Path, nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(root=tmp_path / "runs")
    enqueue(runs, submission(tmp_path, 2))
    nodes.write_text(listed(make_node(1)))
    seen = []

    def pause(_: float) -> None:
        seen.append(runs["one"].effective_state().reason)
        monkeypatch.setattr(scheduler, "NODES_PATIENCE_S", 0.0)

    monkeypatch.setattr("agent.supervisor.scheduler.time.sleep", pause)
    run(runs, nodes_path=str(nodes))
    state = runs["one"].effective_state()
    assert seen[0] == "waiting: 2 nodes requested, but 1 ready (deeplearning-worker1); add workers with `fab scale`"
    assert (state.state, "add workers with `fab scale`; to start it then: `fab resume" in state.reason) == (
        "failed",
        True,
    )


def test_run_replaces_nodes_of_another_run_by_free_nodes(nodes: Path) -> None:
    nodes.write_text(listed(*make_nodes(3), make_node(4, kind="aarch64"), make_node(5)))
    held = [Claim.on("other", [make_node(1)])]
    found = on_free_nodes(make_spec(hosts=make_nodes(3)), held, pytest.fail, str(nodes))
    assert [host.name[-1] for host in found.hosts] == ["2", "3", "5"], "its own, and others of its kind"
    held = [*held, Claim.on("third", [make_node(2), make_node(3, instance_id="i-0000000b")])]
    with pytest.raises(LiveRunError, match="run other uses deeplearning-worker1; run third uses deeplearning-worker2"):
        on_free_nodes(make_spec(hosts=make_nodes(3)), held, pytest.fail, str(nodes))
    with pytest.raises(SpecError, match="6 nodes requested, but 5 ready"):
        on_free_nodes(make_spec(hosts=make_nodes(6)), held, pytest.fail, str(nodes))


def test_second_scheduler_leaves_the_queue_to_the_first(tmp_path: Path, nodes: Path) -> None:
    runs = Runs(root=tmp_path / "runs")
    enqueue(runs, submission(tmp_path, 1))
    liveness.hold(scheduler.LOCK)
    run(runs, nodes_path=str(nodes))
    liveness.let_go(scheduler.LOCK)
    assert runs["one"].effective_state().state == "queued"


def test_run_that_ended_after_the_backup_is_not_restarted(tmp_path: Path) -> None:
    runs = Runs(root=tmp_path / "runs")
    runs.claim("one", make_nodes(1))
    runs["one"].path.mkdir()
    ended = make_state(state="succeeded", updated=3.0)
    runs["one"].write_state(ended)
    states.store(make_state(updated=2.0))  # as after `database.restore`
    abandon("one")
    run(runs, nodes_path=str(tmp_path / "nodes"))
    assert (runs["one"].stored_state(), runs.claims()) == (ended, ())
