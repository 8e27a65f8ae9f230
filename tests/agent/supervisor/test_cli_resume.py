"""Resuming runs through the supervisor's command line."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.agent.supervisor.live_runs import (
    Call,
    final_state,
    live_state,
    log_of,
    run_processes,
    spec,
    supervisor_of,
)
from tests.waiting import eventually


def test_stopped_run_continues_in_its_directory(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "echo first; trap 'exit 1' TERM; sleep 6000 & wait"))
    live_state(efs, "one")
    assert json.loads(supervisor("stop", "one", "--grace", "5").stdout)["state"] == "stopped"
    (efs / "runs" / "one" / "checkpoints" / "step-00000007").mkdir(parents=True)
    done = supervisor("resume", stdin=spec(efs, "one", "echo second"))
    assert json.loads(done.stdout) == {"run_id": "one", "checkpoints": ["step-00000007"], "hosts": [], "position": None}
    assert final_state(efs, "one")["state"] == "succeeded"
    log = (efs / "runs" / "one" / "launcher.log").read_text().splitlines()
    assert [line for line in log if line in ("first", "second")] == ["first", "second"]
    assert any("resumed" in line and "from step-00000007" in line for line in log)
    record = json.loads(supervisor("show", "one").stdout)
    assert record["launch"]["command"][:2] == ["/bin/sh", "-c"]
    assert record["launch"]["environment"]["DEEPCDK_RUN"] == "one"
    assert (record["attempts"], record["state"]["state"], record["result"]) == (2, "succeeded", None)
    again = supervisor("resume", stdin=spec(efs, "one", "echo third"))
    assert (again.returncode, "has succeeded" in again.stderr) == (2, True)


def test_directories_in_place_of_files_block_neither_stop_nor_resume(efs: Path, supervisor: Call) -> None:
    names = ("stop.json", "record.json", "spent.json", "preflight.json", "spec-1.json", "spec-2.json")
    made = "; ".join(f"mkdir -p $RUN/{name}/full" for name in names)
    supervisor("start", stdin=spec(efs, "one", f"{made}; echo at work; trap 'exit 1' TERM; sleep 6000 & wait"))
    eventually(lambda: "at work" in log_of(efs, "one"))
    stopped = supervisor("stop", "one", "--grace", "5")
    assert (stopped.returncode, json.loads(stopped.stdout or "{}").get("state")) == (0, "stopped"), stopped.stderr
    assert json.loads((efs / "runs" / "one" / "record.json").read_text())["state"]["state"] == "stopped"
    assert supervisor("resume", stdin=spec(efs, "one", "echo second")).returncode == 0
    assert final_state(efs, "one")["state"] == "succeeded"
    assert not (efs / "runs" / "one" / "stop.json").exists()


def test_run_with_a_killed_supervisor_continues_and_its_old_processes_do_not(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 600 & wait"))
    os.kill(supervisor_of(efs, "one"), signal.SIGKILL)
    before = set(eventually(lambda: run_processes(efs)))
    assert json.loads(supervisor("show", "one").stdout)["state"]["reason"] == "supervisor died"
    assert supervisor("resume", stdin=spec(efs, "one", "exit 0")).returncode == 0
    assert final_state(efs, "one")["state"] == "succeeded"
    assert not before & set(run_processes(efs))


def test_live_run_is_neither_resumed_nor_removed(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    for done in (supervisor("remove", "one"), supervisor("resume", stdin=spec(efs, "one", "true"))):
        assert (done.returncode, json.loads(done.stdout)["live"]) == (3, "one")
    supervisor("stop", "one", "--grace", "0")
