"""Terminating the workers after the runs: when the queue is empty, with retries, and with failures reported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SpecError
from agent.remote.ssh import Completed
from agent.runs import run_queue
from agent.runs.node_claims import LiveRunError, Runs
from agent.supervisor import scheduler, then_stop
from agent.supervisor.then_stop import STOPPED, TRIES, command, stop_workers
from tests.agent.supervisor.live_runs import Call, final_state, log_of, script_spec
from tests.factories import make_node, make_spec, make_state
from tests.waiting import eventually

POLICY = (
    "arn:aws:autoscaling:eu-west-1:123456789012:scalingPolicy:c322761b-3172-4d56-9a21-0ed9d6161d67:"
    "autoScalingGroupName/workers:policyName/deepcdk-GuardStop"
)


class Api:
    """An AWS CLI that fails this many times."""

    def __init__(self, failures: int = 0) -> None:
        self.commands: list[list[str]] = []
        self._failures = failures

    def __call__(self, argv: Sequence[str], timeout_s: float) -> Completed:
        self.commands.append(list(argv))
        failed = len(self.commands) <= self._failures
        return Completed(status=int(failed), output="AccessDenied\nno\n" if failed else "")


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    (tmp_path / "runs").mkdir()
    return Runs(root=tmp_path / "runs")


def stop(runs: Runs, policy: str, api: Api, by: str = "") -> str:
    return stop_workers(runs, policy, by=by, run=api, sleep=lambda seconds: None)


def test_run_with_then_stop_terminates_workers_once(runs: Runs) -> None:
    api = Api()
    assert stop(runs, POLICY, api) == STOPPED
    assert api.commands == [command(POLICY)]
    assert api.commands[0][:5] == ["aws", "autoscaling", "execute-policy", "--policy-name", POLICY]
    assert "eu-west-1" in api.commands[0]
    assert (stop(runs, "", api), len(api.commands)) == ("", 1)


def test_workers_are_terminated_after_last_queued_run(runs: Runs) -> None:
    api = Api()
    waiting = runs["two"]
    waiting.path.mkdir()
    waiting.write_state(make_state(run_id="two", state="queued"))
    assert stop(runs, POLICY, api) == "the workers are kept for run two, which is queued"
    assert not api.commands
    run_queue.finish(waiting, "succeeded", "")
    assert stop(runs, "", api) == STOPPED, "the last run, which asked for nothing, ends them for the one before"


def test_workers_are_kept_while_another_run_is_live_and_stop_only_once(runs: Runs) -> None:
    api = Api()
    for index, name in enumerate(("one", "two"), start=1):
        runs.claim(name, [make_node(index)])
        runs[name].path.mkdir()
        runs[name].write_state(make_state(run_id=name, state="running"))
    runs["one"].write_state(make_state(run_id="one", state="succeeded"))
    assert stop(runs, POLICY, api, by="one") == "the workers are kept for run two, which is live"
    runs["two"].write_state(make_state(run_id="two", state="succeeded"))
    assert stop(runs, POLICY, api, by="one") == STOPPED, "two has ended, though it still clears its node"
    assert (stop(runs, "", api, by="two"), len(api.commands)) == ("", 1)
    with pytest.raises(LiveRunError, match="run one uses every node"):
        runs.claim("three", [make_node(9)])


def test_workers_are_terminated_even_if_the_database_lost_the_claim_of_the_run(runs: Runs) -> None:
    api = Api()
    assert stop(runs, POLICY, api, by="one") == STOPPED
    assert api.commands == [command(POLICY)]


def test_failed_api_calls_are_retried_and_a_lasting_failure_is_reported_with_a_fix(runs: Runs) -> None:
    api = Api(failures=TRIES - 1)
    assert stop(runs, POLICY, api) == STOPPED
    api = Api(failures=TRIES)
    told = stop(runs, POLICY, api)
    assert told == "the workers could not be stopped and still cost money: no; to stop them: `fab scale 0`"
    assert stop(runs, "", Api()) == "", "it is not tried by a later run, for which nobody asked it"


def test_invalid_policy_is_not_called(runs: Runs) -> None:
    api = Api()
    assert stop(runs, "junk", api) == ""
    with pytest.raises(SpecError, match="stop_policy = 'junk': must be the ARN of a scaling policy"):
        make_spec(stop_policy="junk")
    assert make_spec(stop_policy=POLICY).stop_policy == POLICY


@pytest.mark.parametrize("script", ["exit 0", "exit 1"])
def test_supervisor_terminates_the_workers_after_any_end_of_the_run_and_reports_it(
    efs: Path, supervisor: Call, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    called = fake_cli(efs, monkeypatch)
    supervisor("start", stdin=script_spec(efs, script, stop_policy=POLICY).to_json())
    final_state(efs, "one")
    eventually(lambda: STOPPED in log_of(efs, "one"))
    assert called.read_text().startswith(f"autoscaling execute-policy --policy-name {POLICY} ")


def test_scheduler_stops_workers_after_a_lost_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ask(of: Runs) -> str:
        asked.append(of)
        return ""

    then_stop.remember(runs, POLICY)
    monkeypatch.setattr(then_stop, "stop_workers", ask)
    scheduler.run(runs)
    assert asked == [runs]


def fake_cli(efs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a fake AWS CLI first in PATH that writes its arguments to a file; return the file."""
    program, called = efs / "bin" / "aws", efs / "called"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {called}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return called
