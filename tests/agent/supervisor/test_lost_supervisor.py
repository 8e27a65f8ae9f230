"""Runs that lose their supervisor: the scheduler restarts them, or ends them and reports why."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.remote import secret_files
from agent.runs import liveness, run_cost, run_queue
from agent.runs.node_claims import Runs
from agent.runs.run_cost import Spent
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.run import RunSpec
from agent.spec.run_limits import RunLimits
from agent.supervisor import lost_supervisor, resume_or_remove, scheduler, stop_run, then_stop
from agent.supervisor.lost_supervisor import recover_lost_runs
from tests.agent.lost_runs import lose
from tests.factories import abandon, make_nodes, make_spec


@dataclasses.dataclass
class Begun:
    """Records the actions for lost runs: killed runs, and new supervisors with the reason."""

    killed: list[str] = dataclasses.field(default_factory=list)
    supervised: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    refuses: bool = False

    def kill(self, runs: Runs, spec: RunSpec) -> None:
        self.killed.append(spec.run_id)

    def detach(self, runs: Runs, directory: RunDirectory, *, lost: str) -> None:
        if self.refuses:
            raise RuntimeError("the supervisor did not start:\nno memory")
        assert (directory.stored_state().state, liveness.is_held("one")) == ("starting", True)
        self.supervised.append((directory.run_id, lost))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    found = Begun()
    monkeypatch.setattr(lost_supervisor, "kill", found.kill)
    monkeypatch.setattr(stop_run, "kill", found.kill)
    monkeypatch.setattr(lost_supervisor, "detach", found.detach)
    monkeypatch.setattr("agent.supervisor.lost_supervisor.Copier.finish", lambda self: "")
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    (tmp_path / "runs").mkdir()
    return Runs(root=tmp_path / "runs")


def told(directory: RunDirectory) -> list[dict[str, Any]]:
    path = directory.path / "told"
    return [json.loads(line) for line in path.read_text().split("\n") if line] if path.exists() else []


def test_lost_run_gets_new_supervisor_that_restarts_it_on_its_nodes(runs: Runs, begun: Begun) -> None:
    directory = lose(runs, faults=["a rank was killed"])
    recover_lost_runs(runs)
    state = directory.stored_state()
    assert (state.state, state.started) == ("starting", 1.0)
    assert state.reason == "restart 2 of 3, because its supervisor was lost"
    assert (begun.supervised, begun.killed) == ([("one", "its supervisor was lost")], [])
    assert [(claim.is_live, claim.names) for claim in runs.held()] == [
        (True, ("deeplearning-worker1", "deeplearning-worker2"))
    ]
    made = directory.restarts_made()
    assert [each["for"] for each in made] == ["a rank was killed", "its supervisor was lost"]
    recover_lost_runs(runs)
    assert len(begun.supervised) == 1, "it is no longer lost"


def test_reboot_is_reported_as_the_fault(runs: Runs, begun: Begun) -> None:
    lose(runs)
    (Path.home() / liveness.LOCKS / "one").write_text("of-before-the-reboot\n")
    recover_lost_runs(runs)
    assert begun.supervised == [("one", "the master was rebooted")]


def test_restart_counts_even_if_supervisor_is_lost_before_it(runs: Runs, begun: Begun) -> None:
    directory = lose(runs, restarts=2)
    for _ in range(3):
        recover_lost_runs(runs)
        if runs.live():
            abandon("one")
    assert len(begun.supervised) == 2
    assert directory.stored_state().reason == "supervisor died (after 2 restarts)"
    assert (directory.stored_state().state, runs.held(), begun.killed) == ("failed", [], ["one"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"restarts": 0}, "supervisor died"),
        ({"secrets": ("TOKEN",)}, "supervisor died; the run cannot be restarted: the secrets TOKEN are not on this "
         "node; pass them again with --secret to `fab resume one`"),
        ({"bounds": RunLimits(max_hours=1.0)}, "supervisor died; the run cannot be restarted: it has reached "
         "--max-hours 1: 1 h of 1 h, $2.50; to continue, give `fab resume one` a higher limit"),
    ],
)  # fmt: skip
def test_lost_run_that_cannot_continue_fails_with_the_reason_and_a_notification(
    runs: Runs, begun: Begun, changes: dict[str, Any], reason: str
) -> None:
    directory = lose(runs, notify=("cat >> told; echo >> told",), **changes)
    run_cost.write_spent(directory, Spent(seconds=3600.0, usd=2.5))
    recover_lost_runs(runs)
    state = directory.stored_state()
    assert (state.state, state.reason) == ("failed", reason)
    assert (begun.supervised, begun.killed, runs.lost()) == ([], ["one"], [])
    assert [(event["event"], event["reason"]) for event in told(directory)] == [("failed", reason)]


def test_lost_run_continues_with_secrets_stored_on_master(runs: Runs, begun: Begun) -> None:
    lose(runs, secrets=("TOKEN",))
    kept = secret_files.master_directory(Path.home())
    secret_files.write(kept, "one", '{"TOKEN": "x"}')
    assert secret_files.remove_stale(kept, runs) == []
    recover_lost_runs(runs)
    assert len(begun.supervised) == 1


def test_time_until_loss_is_detected_counts_toward_limit(runs: Runs, begun: Begun) -> None:
    directory = lose(runs, bounds=RunLimits(max_hours=1.0))
    run_cost.write_spent(directory, Spent(seconds=10.0, usd=1.0, usd_per_hour=3600.0, counted=100.0, ends=200.0))
    recover_lost_runs(runs)
    spent = run_cost.read_spent(directory)
    assert spent is not None and spent.usd is not None
    assert (spent.seconds, spent.usd) == pytest.approx((10.0 + 100.0 + 45.0, 146.0))


def test_run_fails_with_output_of_supervisor_that_cannot_start(runs: Runs, begun: Begun) -> None:
    directory = lose(runs, notify=("cat >> told; echo >> told",))
    begun.refuses = True
    recover_lost_runs(runs)
    state = directory.stored_state()
    assert state.reason == "the run could not be restarted: the supervisor did not start:\nno memory"
    assert (state.state, runs.lost(), runs.held(), begun.killed) == ("failed", [], [], ["one"])
    assert [event["event"] for event in told(directory)] == ["failed"]


def test_stopped_run_is_not_recovered(runs: Runs, begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = lose(runs)
    assert stop_run.stop(runs, directory, 0.0).state == "failed"
    recover_lost_runs(runs)
    assert (directory.stored_state().reason, begun.supervised, begun.killed) == ("supervisor died", [], ["one"])
    assert runs.lost() == []


def test_stop_during_recovery_reaches_new_supervisor(runs: Runs, begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, signalled = lose(runs), []
    recover_lost_runs(runs)
    again = dataclasses.replace(directory.stored_state(), reason="its new supervisor")

    def kill(pid: int, number: int) -> None:
        assert directory.stop_request.exists()
        signalled.append((pid, number))
        directory.write_state(dataclasses.replace(again, state="stopped"))

    def sleep(_: float) -> None:
        monkeypatch.setattr(liveness, "supervisor_pid", lambda run_id: 1)
        if not signalled:
            directory.write_state(again)

    monkeypatch.setattr("agent.supervisor.cli.os.kill", kill)
    monkeypatch.setattr("agent.supervisor.cli.time.sleep", sleep)
    assert stop_run.stop(runs, directory, 0.0).state == "stopped"
    assert signalled == [(1, signal.SIGTERM)], "and not to the scheduler, which has it meanwhile"


def test_workers_are_kept_for_run_that_continues(runs: Runs) -> None:
    lose(runs)
    policy = "arn:aws:autoscaling:us-east-1:1:scalingPolicy:x:autoScalingGroupName/w:policyName/none"
    assert then_stop.stop_workers(runs, policy) == "the workers are kept for run one, which is live"


def test_manual_resume_resets_the_count_of_restarts(runs: Runs) -> None:
    directory = lose(runs, faults=["a", "b"])
    directory.mark_failed("over")
    spec = make_spec(run_id="one", hosts=make_nodes(2), restarts=3)
    resume_or_remove.reopen(directory, spec, State.starting(spec))
    assert directory.course() == {"archive": "s3://bucket/runs/one", "times": {}}


def test_next_supervisor_knows_original_node_count_and_left_nodes(runs: Runs) -> None:
    first, *others = make_nodes(3)
    directory = lose(runs, hosts=others)
    left = lost_supervisor.document_of({first.name: first, others[0].name: others[0]})
    restarts = [{"for": "a"}, {"for": "b"}, {"for": "its supervisor"}]
    course = {"times": {"started": 1.0}, "restarts": restarts, "wanted": 3, "left": [*left, {"name": "no node"}, 7]}
    (directory.path / "course.json").write_text(json.dumps(course))
    spec = RunSpec.from_json(directory.spec.read_text())
    before = lost_supervisor.read_lost(directory, spec, "its supervisor was lost")
    assert (before.wanted, before.left) == (3, {first.name: first})
    assert ([each["for"] for each in before.restarts], before.started) == (["a", "b"], 1.0)
    outcome = before.outcome(directory, spec)
    assert (outcome.state, outcome.fault) == ("failed", "its supervisor was lost")
    assert outcome.reason == "supervisor died"


@pytest.mark.parametrize("wanted", [None, 0, -1, "3", True])
def test_run_without_recorded_node_count_keeps_its_nodes(runs: Runs, wanted: object) -> None:
    directory = lose(runs, hosts=make_nodes(2))
    (directory.path / "course.json").write_text(json.dumps({"times": {"started": 1.0}, "wanted": wanted}))
    os.mkfifo(directory.path / "spec-1.json")  # a rank may do this: any reader would wait forever
    spec = RunSpec.from_json(directory.spec.read_text())
    before = lost_supervisor.read_lost(directory, spec, "its supervisor was lost")
    assert (before.wanted, before.left) == (2, {})


def test_scheduler_waits_for_restartable_run_and_recovers_it_after_its_loss(
    runs: Runs, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(runs)
    runs.take_over("one")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            abandon("one")
        if len(pauses) == 3:
            assert begun.supervised == [("one", "its supervisor was lost")]
            runs.release("one")

    monkeypatch.setattr("agent.supervisor.scheduler.time.sleep", pause)
    scheduler.run(runs, watch_s=2.0)
    assert pauses == [2.0, 2.0, 2.0]
    lose(runs, restarts=0)
    scheduler.run(runs)
    assert len(pauses) == 3, "one that makes no restarts keeps none"


def test_scheduler_of_replaced_master_exits_without_recovery(
    runs: Runs, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(runs)
    ending = threading.Event()
    ending.set()
    monkeypatch.setattr(then_stop, "stop_workers", pytest.fail)
    scheduler.run(runs, ending)
    assert (begun.supervised, runs.lost()) == ([], ["one"])


def test_scheduler_is_started_for_restartable_live_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr("agent.supervisor.scheduler.subprocess.Popen", lambda *args, **keys: started.append(args))
    scheduler.ensure_running(runs)
    lose(runs, restarts=0)
    scheduler.ensure_running(runs)
    assert (started, run_queue.ids()) == ([], [])
    lose(runs)
    scheduler.ensure_running(runs)
    assert len(started) == 1
    liveness.hold(scheduler.LOCK)
    scheduler.ensure_running(runs)
    liveness.let_go(scheduler.LOCK)
    assert len(started) == 1
