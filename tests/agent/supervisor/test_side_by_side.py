"""Concurrent runs: however they are started, moved and ended, no two share a node, and they start in order."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import SpecError
from agent.runs import run_queue, run_summary, trusted_spec
from agent.runs.node_claims import LiveRunError, Runs
from agent.runs.run_directory import RunDirectory
from agent.spec.nodes import Node
from agent.spec.submission import Submission
from agent.supervisor import lost_supervisor, scheduler, submit
from agent.supervisor.cli import NoSuchRunError, occupancy, resolve
from tests.factories import (
    AGENT,
    PAYLOAD,
    abandon,
    make_master,
    make_node,
    make_nodes,
    make_spec,
    nodes_text,
)

WORKERS = 5


class Master:
    """A master with runs that are live until the test ends them."""

    def __init__(self, efs: Path) -> None:
        for tree in (AGENT, PAYLOAD):
            (efs / "payloads" / tree).mkdir(parents=True)
        self.efs, self.nodes_path = efs, efs / "nodes"
        self.nodes_path.write_text(nodes_text([make_master(), *make_nodes(WORKERS)]))
        self.runs = Runs(root=efs / "runs")
        self.begun: list[str] = []
        self.waiting: list[str] = []
        """Ids of the runs that wait, in the order in which they were queued."""
        self.states: dict[str, str] = {}
        """The state that each run must have."""

    def detach(self, runs: Runs, directory: RunDirectory) -> None:
        """Replace the start of a supervisor."""
        if directory.run_id in self.waiting:
            assert self.waiting.pop(0) == directory.run_id
        self.begun.append(directory.run_id)
        self.states[directory.run_id] = "starting"

    def submit(self, run_id: str, hosts: tuple[Node, ...]) -> None:
        """Start a run, or queue it, as `fab train --queue` does."""
        submission = Submission(spec=make_spec(run_id=run_id, efs_mount=str(self.efs), hosts=hosts))
        try:
            submit.start(self.runs, submission)
        except LiveRunError:
            submit.enqueue(self.runs, submission)
            self._queue(run_id)

    def resume(self, run_id: str) -> None:
        """Queue a run again that has ended."""
        submit.enqueue_again(self.runs, Submission(spec=trusted_spec.read(run_id)))
        self._queue(run_id)

    def _queue(self, run_id: str) -> None:
        self.waiting.append(run_id)
        self.states[run_id] = "queued"

    def withdraw(self, run_id: str) -> None:
        """Remove a run from the queue."""
        assert run_queue.finish(self.runs[run_id], "stopped", "out")
        self.waiting.remove(run_id)
        self.states[run_id] = "stopped"

    def move(self, run_id: str, node: Node) -> None:
        """Move a live run to a node, unless another run has the node."""
        others = [name for other in self.runs.live() if other != run_id for name in self.hosts(other)]
        try:
            self.runs.move(run_id, [node])
        except LiveRunError:
            assert node.name in others
        else:
            assert node.name not in others
            state = self.runs[run_id].stored_state()
            self.runs[run_id].write_state(dataclasses.replace(state, hosts=(node.name,)))

    def schedule(self) -> None:
        """Schedule as the scheduler does until nothing more can start."""
        while waiting := run_queue.ids():
            lost_supervisor.recover_lost_runs(self.runs)
            if not scheduler._start_first(self.runs, waiting[0], str(self.nodes_path), pytest.fail, patient=True):
                break

    def hosts(self, run_id: str) -> tuple[str, ...]:
        return self.runs[run_id].stored_state().hosts

    def end(self, run_id: str, *, lost: bool) -> None:
        """End a run normally, or through the loss of its supervisor."""
        if lost:
            abandon(run_id)
        else:
            self.runs[run_id].mark_failed("over")
            self.runs.release(run_id)
        self.states[run_id] = "failed"

    def check(self) -> None:
        """Check that no two live runs share a node, and the queue and the states."""
        live = self.runs.live()
        taken = [name for run_id in live for name in self.hosts(run_id)]
        assert len(taken) == len(set(taken))
        assert {claim.run_id: claim.names for claim in self.runs.held()} == {each: self.hosts(each) for each in live}
        assert run_queue.ids() == self.waiting
        assert {run_id: self.runs[run_id].effective_state().state for run_id in self.runs.ids()} == self.states


@pytest.fixture
def no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill and copy nothing on other nodes, and do not wait for runs that clear their nodes."""
    monkeypatch.setattr(lost_supervisor, "kill", lambda runs, spec: None)
    monkeypatch.setattr(submit, "_clear", lambda runs, directory, spec: None)
    monkeypatch.setattr("agent.supervisor.lost_supervisor.Copier.finish", lambda self: "")
    monkeypatch.setattr(submit, "READY_TIMEOUT_S", 0.0)


@contextlib.contextmanager
def master_in(efs: Path) -> Iterator[Master]:
    master = Master(efs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(efs))  # each example has its own database
        patch.setattr(submit, "detach", master.detach)
        patch.setattr(scheduler, "detach", master.detach)
        patch.setattr(submit, "NODES_PATH", str(master.nodes_path))
        yield master


SUBMIT = st.sets(st.integers(1, WORKERS), min_size=1).map(sorted)
OTHERS = ("schedule", "end first", "end last", "lose first", "withdraw", "resume")
STEPS = st.lists(SUBMIT | st.integers(1, WORKERS) | st.sampled_from(OTHERS), max_size=14)
"""Submit a run on these nodes, move the first live run to a node, or change others."""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_runs_share_no_node_and_start_in_order(
    tmp_path_factory: pytest.TempPathFactory, no_commands: None, steps: list[list[int] | int | str]
) -> None:
    with master_in(tmp_path_factory.mktemp("efs")) as master:
        for number, step in enumerate(steps):
            if isinstance(step, list):
                nodes = make_nodes(WORKERS)
                master.submit(f"run{number:02}", tuple(nodes[index - 1] for index in step))
            elif step == "schedule":
                master.schedule()
            elif step == "withdraw":
                for run_id in master.waiting[-1:]:
                    master.withdraw(run_id)
            elif step == "resume":
                for run_id in [each for each, state in master.states.items() if state in ("failed", "stopped")][:1]:
                    master.resume(run_id)
            elif live := master.runs.live():
                if isinstance(step, int):
                    master.move(live[0], make_node(step))
                else:
                    master.end(live[-1 if step == "end last" else 0], lost=step == "lose first")
            master.check()
        while master.runs.live() or run_queue.ids():
            for run_id in master.runs.live():
                master.end(run_id, lost=False)
            master.schedule()
            master.check()
        assert set(master.states.values()) <= {"failed", "stopped"} and not master.waiting


def test_small_run_does_not_overtake_large_run(tmp_path: Path, no_commands: None) -> None:
    with master_in(tmp_path) as master:
        nodes = make_nodes(WORKERS)
        for run_id, count in (("one", 2), ("two", 2), ("large", 4), ("small", 1)):
            master.submit(run_id, nodes[:count])
        assert master.begun == ["one", "two"], "the second takes other nodes than it asked for"
        assert master.hosts("two") == ("deeplearning-worker3", "deeplearning-worker4")
        master.schedule()
        assert run_queue.ids() == ["large", "small"]
        told = run_summary.summaries(master.runs)[0]
        assert (told["run_id"], told["reason"]) == ("large", "position 1 in the queue, after one or two")
        master.end("one", lost=False)
        master.schedule()
        assert master.begun == ["one", "two"], "three are free, and the large one needs four"
        master.end("two", lost=True)
        master.schedule()
        assert master.begun == ["one", "two", "large", "small"]
        assert master.runs["two"].effective_state().state == "failed"


def test_only_ending_run_is_awaited(tmp_path: Path, no_commands: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with master_in(tmp_path) as master:
        master.submit("one", make_nodes(4))
        submission = Submission(spec=make_spec(run_id="two", efs_mount=str(tmp_path), hosts=make_nodes(2)))
        monkeypatch.setattr(submit, "READY_TIMEOUT_S", 60.0)
        with pytest.raises(LiveRunError, match="run one uses deeplearning-worker1, "):
            submit.start(master.runs, submission)
        master.runs["one"].mark_failed("over")
        looks: list[float] = []

        def pause(seconds: float) -> None:
            looks.append(seconds)
            master.runs.release("one")

        monkeypatch.setattr("agent.polling.time.sleep", pause)
        submit.start(master.runs, submission)
        assert (master.begun, len(looks)) == (["one", "two"], 1)


def test_node_that_left_since_request_is_reported_without_start(tmp_path: Path, no_commands: None) -> None:
    with master_in(tmp_path) as master:
        there, gone = make_nodes(2), make_node(WORKERS + 1)
        submission = Submission(spec=make_spec(run_id="one", efs_mount=str(tmp_path), hosts=(*there, gone)))
        with pytest.raises(
            SpecError, match="worker6 left the cluster while run one was being launched; repeat the command"
        ):
            submit.start(master.runs, submission)
        assert (master.runs.held(), master.runs.ids()) == ([], [])
        master.submit("one", there)
        master.runs["one"].mark_failed("over")
        master.runs.release("one")
        with pytest.raises(SpecError, match="worker6 left the cluster"):
            submit.resume(master.runs, submission)
        assert (master.runs.held(), master.begun) == ([], ["one"])


def test_default_run_is_the_only_live_one(tmp_path: Path, no_commands: None) -> None:
    with master_in(tmp_path) as master:
        for run_id, count in (("one", 2), ("two", 1)):
            master.submit(run_id, make_nodes(count))
        with pytest.raises(NoSuchRunError) as refused:
            resolve(master.runs, "")
        assert str(refused.value) == (
            "2 runs are live; choose one with --run ID: run one uses deeplearning-worker1, deeplearning-worker2; "
            "run two uses deeplearning-worker3"
        )
        assert resolve(master.runs, "two").run_id == "two"
        assert occupancy(master.runs)["live"][1] == {
            "run_id": "two",
            "hosts": ["deeplearning-worker3"],
            "started_by": None,
        }
        master.runs["two"].mark_failed("over")  # and it still clears its nodes
        assert resolve(master.runs, "").run_id == "one"
        assert [run["run_id"] for run in occupancy(master.runs)["live"]] == ["one"]
        master.end("one", lost=False)
        assert resolve(master.runs, "").run_id == "two", "the newest"


def test_run_with_older_spec_runs_alone(tmp_path: Path, no_commands: None) -> None:
    with master_in(tmp_path) as master:
        master.submit("one", make_nodes(1))
        master.runs.release("one")
        master.runs.claim("one", None)  # like a live run of that version
        master.submit("two", make_nodes(2)[1:])
        master.schedule()
        assert (master.begun, master.waiting) == (["one"], ["two"])
        master.end("one", lost=False)
        master.schedule()
        assert master.begun == ["one", "two"]
