"""Facts about the scheduler: on which nodes a waiting run begins, and when it gives up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.runs.process_identity import ProcessIdentity
from agent.runs.store import Runs
from agent.spec.nodes import parse_nodes
from agent.spec.provenance import Submission
from agent.spec.run import RunSpec
from agent.supervisor import scheduler
from agent.supervisor.scheduler import on_live_nodes, run
from agent.supervisor.submit import enqueue

MASTER = "deeplearning-master 10.0.0.5 i-00000000 1 ens5 us-east-1a\n"


def listed(*indices: int, generation: str = "a", slots: int = 1) -> str:
    """Write a nodes file of the master and these workers; `generation` tells instances of one name apart."""
    return MASTER + "".join(
        f"deeplearning-worker{n} 10.0.1.{n} i-{n:07x}{generation} {slots} ens5 us-east-1a\n" for n in indices
    )


def spec_on(hosts: str, run_id: str = "one", efs: Path = Path("/mnt/efs")) -> RunSpec:
    return RunSpec(
        run_id=run_id, efs_mount=str(efs), agent="a" * 16, payload="0123456789abcdef", command=("train.py",),
        hosts=parse_nodes(hosts, pytest.fail)[1:], interface="ens5",
    )  # fmt: skip


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Return the path of the nodes file, beside the trees that the runs name."""
    for tree in ("a" * 16, "0123456789abcdef"):
        (tmp_path / "payloads" / tree).mkdir(parents=True)
    return tmp_path / "nodes"


def test_a_run_keeps_its_nodes_while_they_are_the_same_instances(nodes: Path) -> None:
    nodes.write_text(listed(1, 2, 3))
    spec = spec_on(listed(2, 3))
    assert on_live_nodes(spec, pytest.fail, str(nodes)) == spec


def test_a_replaced_node_is_taken_as_it_is_now_with_the_slots_that_were_asked_for(nodes: Path) -> None:
    nodes.write_text(listed(1, 3, generation="b", slots=8))
    again = on_live_nodes(spec_on(listed(1, 2, slots=4)), pytest.fail, str(nodes))
    assert [(host.name, host.instance_id, host.slots) for host in again.hosts] == [
        ("deeplearning-worker1", "i-0000001b", 4), ("deeplearning-worker3", "i-0000003b", 4),
    ]  # fmt: skip


def test_too_few_nodes_are_told(nodes: Path) -> None:
    nodes.write_text(listed(1))
    with pytest.raises(SpecError, match=r"2 nodes wanted, 1 ready"):
        on_live_nodes(spec_on(listed(1, 2)), pytest.fail, str(nodes))


def test_a_bad_line_leaves_out_its_node_alone_and_is_told(nodes: Path) -> None:
    nodes.write_bytes(listed(1, 2).encode() + b"deeplearning-worker3 \xff i-0000003a 1 ens5 us-east-1a\n")
    told: list[str] = []
    assert on_live_nodes(spec_on(listed(1, 2)), told.append, str(nodes)) == spec_on(listed(1, 2))
    assert [r"line 4 of" in text and r"address = '\\xff'" in text for text in told] == [True]


def test_the_scheduler_logs_a_bad_line_once_however_often_it_reads_it(
    tmp_path: Path, nodes: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    nodes.write_text(listed(1) + "deeplearning-worker2 $(id) i-0000002a 1 ens5 us-east-1a\n")
    runs, seen = Runs(root=tmp_path / "runs"), []
    enqueue(runs, Submission(spec=spec_on(listed(1, 2), efs=tmp_path)))

    def pause(_: float) -> None:
        seen.append(runs["one"].effective_state().reason)
        if len(seen) == 3:
            monkeypatch.setattr(scheduler, "NODES_PATIENCE_S", 0.0)

    monkeypatch.setattr("agent.supervisor.scheduler.time.sleep", pause)
    run(runs, nodes_path=str(nodes))
    assert capfd.readouterr().err.count("address = '$(id)': must be an IPv4 address") == 1
    assert len(seen) > 3


def test_a_run_whose_nodes_never_come_fails_with_the_reason_and_lets_the_queue_go_on(
    tmp_path: Path, nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(root=tmp_path / "runs")
    enqueue(runs, Submission(spec=spec_on(listed(1, 2), efs=tmp_path)))
    nodes.write_text(listed(1))
    seen = []

    def pause(_: float) -> None:
        seen.append(runs["one"].effective_state().reason)
        monkeypatch.setattr(scheduler, "NODES_PATIENCE_S", 0.0)

    monkeypatch.setattr("agent.supervisor.scheduler.time.sleep", pause)
    run(runs, nodes_path=str(nodes))
    state = runs["one"].effective_state()
    assert seen[0] == "waiting: 2 nodes wanted, 1 ready (deeplearning-worker1)"
    assert (state.state, "`fab scale` adds nodes" in state.reason) == ("failed", True)


def test_nothing_starts_while_a_run_is_live(tmp_path: Path, nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(root=tmp_path / "runs")
    enqueue(runs, Submission(spec=spec_on(listed(1), efs=tmp_path)))
    nodes.write_text(listed(1))
    runs.claim("other", ProcessIdentity.of(os.getpid()))
    begun: list[str] = []
    monkeypatch.setattr(scheduler, "detach", lambda runs, directory: begun.append(directory.run_id))

    def pause(_: float) -> None:
        if runs.live() == "other":
            assert begun == []
            runs.release("other")
        else:
            assert begun == ["one"]

    monkeypatch.setattr("agent.supervisor.scheduler.time.sleep", pause)
    run(runs, nodes_path=str(nodes))
    assert begun == ["one"]


def test_a_second_scheduler_leaves_the_queue_to_the_first(tmp_path: Path, nodes: Path) -> None:
    runs = Runs(root=tmp_path / "runs")
    enqueue(runs, Submission(spec=spec_on(listed(1), efs=tmp_path)))
    with scheduler._scheduler_lock(runs) as alone:
        assert alone is not None
        run(runs, nodes_path=str(nodes))
    assert runs["one"].effective_state().state == "queued"
