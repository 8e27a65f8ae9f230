"""Runs on the master, with real processes and launchers from the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.runs import liveness
from agent.runs.node_claims import Runs
from agent.supervisor import submit
from agent.supervisor.attempt import Attempt
from agent.supervisor.restart import Outcome
from tests.agent.supervisor.live_runs import (
    Call,
    final_state,
    live_state,
    log_of,
    run_processes,
    script_spec,
    spec,
    supervise,
    supervisor_of,
)
from tests.factories import AGENT, abandon, make_state
from tests.waiting import PATIENCE_S, eventually


def test_heartbeat_is_shown_but_does_not_write_the_state(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    started = live_state(efs, "one")
    written = (efs / "runs/one/state.json").read_bytes()
    updated = eventually(lambda: moment if (moment := updated_of(supervisor)) > started["updated"] else None)
    eventually(lambda: updated_of(supervisor) > updated)
    assert (efs / "runs/one/state.json").read_bytes() == written
    os.kill(supervisor_of(efs, "one"), signal.SIGKILL)
    eventually(lambda: json.loads(supervisor("status", "one").stdout)["state"] == "failed")
    assert updated <= updated_of(supervisor) <= time.time(), "the run lasted until its last heartbeat"


def updated_of(supervisor: Call) -> float:
    return float(json.loads(supervisor("status", "one").stdout)["updated"])


def test_run_outlives_the_process_that_started_it_and_succeeds(efs: Path, supervisor: Call) -> None:
    started = supervisor(
        "start", stdin=spec(efs, "one", 'echo hello; sleep 0.5; echo \'{"event":"end"}\' > $RUN/metrics.jsonl')
    )
    assert (started.returncode, json.loads(started.stdout)["run_id"]) == (0, "one")
    state = final_state(efs, "one")
    assert (state["state"], state["exit_code"], state["recipe"]) == ("succeeded", 0, "digits")
    assert "hello" in (efs / "runs" / "one" / "launcher.log").read_text()
    eventually(lambda: not Runs(root=efs / "runs").claims())


def test_supervisor_that_exits_at_once_is_reported_with_its_log_and_the_command_to_try_again(
    efs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(root=efs / "runs")
    runs["one"].path.mkdir(parents=True)
    runs["one"].log.write_text("no memory\n")
    liveness.hold("one")
    monkeypatch.setattr("agent.supervisor.submit.sys.executable", "/bin/false")
    with pytest.raises(RuntimeError) as caught:
        submit.detach(runs, runs["one"])
    told = "the supervisor did not start; to try again: `fab resume one`. The end of its log:\nno memory"
    assert str(caught.value) == told


def test_internal_error_fails_the_run_and_names_the_log_with_its_traceback(
    efs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(attempt: Attempt) -> Outcome:
        raise KeyError("color")

    monkeypatch.setattr(Attempt, "carry_out", broken)
    with pytest.raises(KeyError):
        supervise(script_spec(efs, "true"))
    state = Runs(root=efs / "runs")["one"].stored_state()
    told = "an internal error, KeyError: 'color'; `fab logs` shows its traceback"
    assert (state.state, state.reason) == ("failed", told)


def test_failed_run_reports_status_and_last_lines(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "echo the disk is full >&2; exit 7"))
    state = final_state(efs, "one")
    assert (state["state"], state["exit_code"]) == ("failed", 7)
    assert "status 7" in state["reason"]
    assert "the disk is full" in state["last_lines"]


def test_second_run_is_rejected_with_name_of_live_run(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    second = supervisor("start", stdin=spec(efs, "two", "true"))
    assert second.returncode == 3
    assert json.loads(second.stdout) == {"live": "one", "state": "live", "held": [{"run_id": "one", "hosts": []}]}
    assert "run one is live" in second.stderr
    assert not (efs / "runs" / "two").exists()
    assert json.loads(supervisor("status", "--live").stdout) == {
        "live": [{"run_id": "one", "hosts": [], "started_by": None}],
        "queued": [],
    }
    supervisor("stop", "one", "--grace", "0")


def test_one_of_many_concurrent_starts_succeeds(efs: Path) -> None:
    command = [sys.executable, "-m", "agent.supervisor.cli", "--root", str(efs / "runs"), "start"]
    starts = []
    for number in range(6):
        process = subprocess.Popen(
            command, cwd=efs / "payloads" / AGENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        starts.append((process, spec(efs, f"run{number}", "sleep 6000")))
    for process, text in starts:
        if process.stdin is None:
            raise AssertionError("no pipe")
        process.stdin.write(text)
        process.stdin.close()
    codes = sorted(process.wait(timeout=PATIENCE_S) for process, _ in starts)
    for process, _ in starts:
        if process.stdout is not None:
            process.stdout.close()
    assert codes == [0, 3, 3, 3, 3, 3]
    assert len(Runs(root=efs / "runs").ids()) == 1


def test_stop_lets_launcher_exit_gracefully(efs: Path, supervisor: Call) -> None:
    script = "trap 'echo checkpoint written; exit 0' TERM; echo at work; while :; do sleep 0.1; done"
    supervisor("start", stdin=spec(efs, "one", script))
    eventually(lambda: "at work" in log_of(efs, "one"))
    stopped = json.loads(supervisor("stop").stdout)
    assert (stopped["state"], stopped["was_live"]) == ("stopped", True)
    assert "checkpoint written" in (efs / "runs" / "one" / "launcher.log").read_text()
    assert json.loads(supervisor("stop", "one").stdout)["was_live"] is False


def test_rank_gets_sigterm_first_and_is_killed_after_the_grace(efs: Path, supervisor: Call) -> None:
    rank = "trap 'echo rank heard' TERM; echo at work; while :; do sleep 0.1; done"
    supervisor("start", stdin=spec(efs, "one", f'trap "" TERM; HOROVOD_RANK=0 sh -c "{rank}"; exit 1'))
    eventually(lambda: "at work" in log_of(efs, "one"))
    began = time.monotonic()
    stopped = json.loads(supervisor("stop", "--grace", "1").stdout)
    assert stopped["state"] == "stopped"
    assert time.monotonic() - began >= 1.0
    assert "rank heard" in log_of(efs, "one")
    assert "the grace period is over: sending SIGKILL to the ranks" in log_of(efs, "one")
    eventually(lambda: not run_processes(efs))


def test_run_with_killed_supervisor_is_failed_and_can_be_taken_over(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 600"))
    os.kill(supervisor_of(efs, "one"), signal.SIGKILL)
    eventually(lambda: json.loads(supervisor("status", "one").stdout)["state"] == "failed")
    assert json.loads(supervisor("status", "one").stdout)["reason"] == "supervisor died"
    assert json.loads(supervisor("status", "--live").stdout) == {"live": [], "queued": []}
    assert supervisor("start", stdin=spec(efs, "two", "sleep 0.1")).returncode == 0
    assert json.loads((efs / "runs" / "one" / "state.json").read_text())["reason"] == "supervisor died"
    assert final_state(efs, "two")["state"] == "succeeded"


def test_stop_kills_processes_of_dead_supervisor(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 600"))
    os.kill(supervisor_of(efs, "one"), signal.SIGKILL)
    eventually(lambda: json.loads(supervisor("status", "one").stdout)["state"] == "failed")
    assert run_processes(efs)
    assert json.loads(supervisor("stop", "one").stdout)["state"] == "failed"
    assert not run_processes(efs)


def test_following_sends_state_then_metrics_then_end(efs: Path, supervisor: Call) -> None:
    script = 'for n in 0 1 2; do echo "{\\"event\\":\\"step\\",\\"step\\":$n}" >> $RUN/metrics.jsonl; sleep 0.2; done'
    supervisor("start", stdin=spec(efs, "one", script))
    messages = [json.loads(line) for line in supervisor("follow", "one", "--from-line", "1").stdout.splitlines()]
    assert [m["line"] for m in messages if m["type"] == "metric"] == [1, 2]
    assert (messages[-1]["type"], messages[-1]["state"]) == ("state", "succeeded")


def test_log_of_one_rank_can_be_shown_separately(efs: Path, supervisor: Call) -> None:
    supervisor(
        "start", stdin=spec(efs, "one", "echo '[0]<stdout>:zero'; echo '[10]<stderr>:ten'; printf '[0]<stderr>:last'")
    )
    final_state(efs, "one")

    def read(*words: str) -> list[str]:
        said = supervisor("follow", *words, "--only-log", "--log-from", "0").stdout
        return [line for each in said.splitlines() for line in json.loads(each).get("lines", [])]

    assert read("one", "--rank", "0", "--once") == ["[0]<stdout>:zero", "[0]<stderr>:last"]
    assert read("one", "--rank", "10") == ["[10]<stderr>:ten"]
    assert "[10]<stderr>:ten" in read()


def test_run_id_is_used_once_and_unknown_one_is_reported(efs: Path, supervisor: Call) -> None:
    assert supervisor("status").returncode == 4
    supervisor("start", stdin=spec(efs, "one", "true"))
    final_state(efs, "one")
    again = supervisor("start", stdin=spec(efs, "one", "true"))
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
    unknown = supervisor("status", "two")
    assert (unknown.returncode, "unknown run two" in unknown.stderr) == (4, True)


def test_invalid_spec_leaves_no_files(efs: Path, supervisor: Call) -> None:
    refused = supervisor("start", stdin='{"run_id": "x"}')
    assert refused.returncode == 2
    assert not (efs / "runs").exists()


def test_finished_run_is_removed_completely_and_others_are_kept(efs: Path, supervisor: Call) -> None:
    for name in ("one", "two"):
        supervisor("start", stdin=spec(efs, name, "true"))
        final_state(efs, name)
    removed = json.loads(supervisor("remove", "one").stdout)
    assert (removed["run_id"], removed["files"] >= 3, removed["bytes"] > 0) == ("one", True, True)
    assert [entry.name for entry in (efs / "runs").iterdir() if not entry.name.startswith(".")] == ["two"]
    for done in (supervisor("remove", "one"), supervisor("show", "one"), supervisor("remove", "../two")):
        assert done.returncode == 4


def files_of(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return each file's modification time and content."""
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("status", "one"), '"failed"'), (("status", "--list"), '"failed"'), (("status", "--live"), '"live": []'),
        (("show", "one"), '"failed"'), (("follow", "one"), '"failed"'),
        (("follow", "one", "--log-from", "0"), "a line"), (("follow", "one", "--log-from", "0", "--once"), "a line"),
    ],
)  # fmt: skip
def test_reading_a_run_whose_supervisor_is_gone_shows_it_failed_and_writes_nothing(
    efs: Path, supervisor: Call, words: tuple[str, ...], shown: str
) -> None:
    runs = Runs(root=efs / "runs")
    runs["one"].path.mkdir(parents=True)
    runs["one"].spec.write_text(spec(efs, "one", "true"))
    runs["one"].log.write_text("a line\n")
    runs["one"].write_state(make_state())
    runs.claim("one", None)
    abandon("one")
    before = files_of(efs / "runs")
    done = supervisor(*words)
    assert (done.returncode, files_of(efs / "runs")) == (0, before), done.stderr
    assert shown in done.stdout
