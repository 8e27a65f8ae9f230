"""A run with a limit: the supervisor stops it like a user would, and kills processes that do not exit."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from agent.runs import run_cost
from agent.runs import stored_state as states
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.run_limits import RunLimits
from agent.spec.submission import Origin
from agent.supervisor import rank_permissions
from agent.supervisor.supervisor import Supervisor
from tests.agent.supervisor import live_runs
from tests.agent.supervisor.live_runs import Call, script_spec, supervisor_of
from tests.factories import MASTER_ID
from tests.waiting import eventually

GENTLE = "trap 'echo checkpoint written; exit 0' TERM; while :; do sleep 0.1; done"
ORIGIN = Origin(master=MASTER_ID, instance_types={MASTER_ID: "t3.medium"}, usd_per_hour={"t3.medium": 3600.0})
"""A master that costs a dollar per second."""


def supervise(efs: Path, script: str, bounds: RunLimits) -> tuple[State, RunDirectory]:
    return live_runs.supervise(script_spec(efs, script, bounds=bounds), ORIGIN)


def test_run_at_its_limit_is_stopped_with_checkpoint_and_reason(efs: Path) -> None:
    state, directory = supervise(efs, GENTLE, RunLimits(max_usd=6.0))
    log = directory.log.read_text()
    assert state.state == "stopped"
    assert state.reason.startswith("reached --max-cost 6: $")
    assert re.search(r"80% of a limit is used, --max-cost 6: \$[45]\.", log)
    assert "checkpoint written" in log
    kept = json.loads((directory.path / "record.json").read_text())
    assert kept["spent"]["reached"] == state.reason
    assert 6.0 <= kept["spent"]["usd"] < 30.0
    assert kept["spent"]["ends"] is None


def test_files_are_closed_to_ranks_before_the_run_is_reported_as_ended(
    efs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run starts as soon as this run is reported as ended, and its ranks have the same user."""
    store, modes = states.store, {}

    def mode(directory: RunDirectory) -> int:
        return directory.path.stat().st_mode & 0o7777

    def recorded(state: State) -> None:
        modes[state.state] = mode(Runs(root=efs / "runs")[state.run_id])
        store(state)

    def readable(directory: RunDirectory, run: object) -> str:
        modes["made readable"] = mode(directory)
        return ""

    monkeypatch.setattr(states, "store", recorded)
    monkeypatch.setattr(rank_permissions, "make_readable", readable)
    supervise(efs, "true", RunLimits())
    # The ranks' user makes its own files readable, and must enter the directory to do so.
    assert (modes["running"], modes["made readable"], modes["succeeded"]) == (0o1770, 0o1770, 0o700)


def test_run_that_ends_before_its_limit_has_reached_none(efs: Path) -> None:
    state, directory = supervise(efs, "sleep 0.3", RunLimits(max_hours=1.0, max_usd=100.0))
    spent = run_cost.read_spent(directory)
    assert state.state == "succeeded"
    assert spent is not None and (spent.reached, spent.ends) == ("", None)
    assert 0.3 <= spent.seconds < 10.0


def test_time_of_earlier_attempts_counts(efs: Path) -> None:
    supervise(efs, "sleep 0.5", RunLimits(max_hours=1.0))
    before = run_cost.read_spent(Runs(root=efs / "runs")["one"])
    assert before is not None
    run_cost.write_spent(Runs(root=efs / "runs")["one"], before.__class__(seconds=3600.0, usd=1.0))
    state, _ = supervise(efs, GENTLE, RunLimits(max_hours=1.0))
    assert state.reason.startswith("reached --max-hours 1: 1 h of 1 h")


def test_earlier_stop_by_user_is_the_reason(efs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Supervisor.supervise

    def stopped(self: Supervisor) -> State:
        self.request_stop()
        return begin(self)

    monkeypatch.setattr(Supervisor, "supervise", stopped)
    state, directory = supervise(efs, GENTLE, RunLimits(max_hours=1e-9))
    spent = run_cost.read_spent(directory)
    assert state.reason == "stopped on request, before the launch"
    assert spent is not None and spent.reached == ""


def test_time_after_killed_supervisor_counts_up_to_the_limit(efs: Path, supervisor: Call) -> None:
    spec = script_spec(efs, "sleep 600", bounds=RunLimits(max_hours=1.0))
    supervisor("start", stdin=spec.to_json())
    os.kill(supervisor_of(efs, "one"), signal.SIGKILL)
    path = efs / "runs" / "one" / run_cost.SPENT_FILE
    before = eventually(lambda: json.loads(path.read_text()))
    assert before["ends"] > time.time() + 3500
    time.sleep(1.0)
    supervisor("stop", "one")
    after = json.loads(path.read_text())
    assert (after["ends"], after["seconds"] >= before["seconds"] + 1.0) == (None, True)
