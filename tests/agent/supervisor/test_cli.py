"""Facts about runs on the master, with real processes and a launcher of the tests' own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.runs.directory import State
from agent.runs.process_identity import ProcessIdentity
from agent.runs.store import Runs
from agent.spec.provenance import Submission
from agent.spec.run import RunSpec
from agent.spec.states import FINAL_STATES
from agent.supervisor.submit import enqueue
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[3]
AGENT = "a" * 16
PAYLOAD = "0123456789abcdef"

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def efs(tmp_path: Path) -> Iterator[Path]:
    """Lay out a shared file system with this project's agent and payload; at the end kill what still runs."""
    for tree, package in ((AGENT, "agent"), (PAYLOAD, "payload")):
        directory = tmp_path / "payloads" / tree
        directory.mkdir(parents=True)
        (directory / package).symlink_to(PROJECT / package)
    yield tmp_path
    for state in (tmp_path / "runs").glob("*/state.json"):
        for pid in [*run_processes(tmp_path), json.loads(state.read_text())["pid"]]:
            try:
                if b"agent.supervisor.cli" in Path(f"/proc/{pid}/cmdline").read_bytes() or pid in run_processes(
                    tmp_path
                ):
                    os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, FileNotFoundError):
                continue


@pytest.fixture
def supervisor(efs: Path) -> Call:
    """Return a caller of the supervisor's command line."""

    def call(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "agent.supervisor.cli", "--root", str(efs / "runs"), *arguments],
            cwd=efs / "payloads" / AGENT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def spec(efs: Path, run_id: str, script: str) -> str:
    """Write the spec of a run whose launcher is a shell script; $RUN is its directory."""
    launcher = ("/bin/sh", "-c", f"RUN={efs}/runs/{run_id}; {script}")
    return RunSpec(
        run_id=run_id,
        efs_mount=str(efs),
        agent=AGENT,
        payload=PAYLOAD,
        command=(),
        hosts=(),
        launcher=launcher,
        recipe="digits",
    ).to_json()


def run_processes(efs: Path) -> list[int]:
    """Return the pids of every process of any run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and f"DEEPCDK_RUNS={efs}/runs".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def final_state(efs: Path, run_id: str) -> dict[str, Any]:
    path = efs / "runs" / run_id / "state.json"
    return eventually(lambda: state if (state := json.loads(path.read_text()))["state"] in FINAL_STATES else None)


def live_state(efs: Path, run_id: str) -> dict[str, Any]:
    path = efs / "runs" / run_id / "state.json"
    return eventually(lambda: state if (state := json.loads(path.read_text()))["state"] == "running" else None)


def log_of(efs: Path, run_id: str) -> str:
    """Return what the run's launcher wrote, "" before it began."""
    path = efs / "runs" / run_id / "launcher.log"
    return path.read_text() if path.exists() else ""


def test_a_run_outlives_the_process_that_started_it_and_succeeds(efs: Path, supervisor: Call) -> None:
    started = supervisor(
        "start", stdin=spec(efs, "one", 'echo hello; sleep 0.5; echo \'{"event":"end"}\' > $RUN/metrics.jsonl')
    )
    assert (started.returncode, json.loads(started.stdout)["run_id"]) == (0, "one")
    state = final_state(efs, "one")
    assert (state["state"], state["exit_code"], state["recipe"]) == ("succeeded", 0, "digits")
    assert "hello" in (efs / "runs" / "one" / "launcher.log").read_text()
    eventually(lambda: not (efs / "runs" / ".live").exists())


def test_a_failed_run_tells_its_status_and_last_lines(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "echo the disk is full >&2; exit 7"))
    state = final_state(efs, "one")
    assert (state["state"], state["exit_code"]) == ("failed", 7)
    assert "status 7" in state["reason"]
    assert "the disk is full" in state["last_lines"]


def test_a_second_run_is_refused_by_the_name_of_the_live_one(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    second = supervisor("start", stdin=spec(efs, "two", "true"))
    assert second.returncode == 3
    assert json.loads(second.stdout) == {"live": "one", "state": "live"}
    assert "run one is live" in second.stderr
    assert not (efs / "runs" / "two").exists()
    assert json.loads(supervisor("status", "--live").stdout)["run_id"] == "one"
    supervisor("stop", "one", "--grace", "0")


def test_of_many_starts_at_once_exactly_one_wins(efs: Path) -> None:
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
    codes = sorted(process.wait(timeout=60) for process, _ in starts)
    for process, _ in starts:
        if process.stdout is not None:
            process.stdout.close()
    assert codes == [0, 3, 3, 3, 3, 3]
    assert len(Runs(root=efs / "runs").ids()) == 1


def test_a_stop_lets_the_launcher_end_gracefully(efs: Path, supervisor: Call) -> None:
    script = "trap 'echo checkpoint written; exit 0' TERM; echo at work; while :; do sleep 0.1; done"
    supervisor("start", stdin=spec(efs, "one", script))
    eventually(lambda: "at work" in log_of(efs, "one"))
    stopped = json.loads(supervisor("stop").stdout)
    assert (stopped["state"], stopped["was_live"]) == ("stopped", True)
    assert "checkpoint written" in (efs / "runs" / "one" / "launcher.log").read_text()
    assert json.loads(supervisor("stop", "one").stdout)["was_live"] is False


def test_a_rank_gets_sigterm_first_and_is_killed_after_the_grace(efs: Path, supervisor: Call) -> None:
    rank = "trap 'echo rank heard' TERM; echo at work; while :; do sleep 0.1; done"
    supervisor("start", stdin=spec(efs, "one", f'trap "" TERM; HOROVOD_RANK=0 sh -c "{rank}"; exit 1'))
    eventually(lambda: "at work" in log_of(efs, "one"))
    began = time.monotonic()
    stopped = json.loads(supervisor("stop", "--grace", "1").stdout)
    assert stopped["state"] == "stopped"
    assert time.monotonic() - began >= 1.0
    assert "rank heard" in (efs / "runs" / "one" / "launcher.log").read_text()
    eventually(lambda: not run_processes(efs))


def test_a_run_whose_supervisor_was_killed_is_told_as_failed_and_taken_over(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 600"))
    os.kill(live_state(efs, "one")["pid"], signal.SIGKILL)
    eventually(lambda: json.loads(supervisor("status", "one").stdout)["state"] == "failed")
    assert json.loads(supervisor("status", "one").stdout)["reason"] == "supervisor died"
    assert json.loads(supervisor("status", "--live").stdout) is None
    assert supervisor("start", stdin=spec(efs, "two", "sleep 0.1")).returncode == 0
    assert json.loads((efs / "runs" / "one" / "state.json").read_text())["reason"] == "supervisor died"
    assert final_state(efs, "two")["state"] == "succeeded"


def test_what_a_dead_supervisor_left_running_is_killed_by_stop(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 600"))
    os.kill(live_state(efs, "one")["pid"], signal.SIGKILL)
    eventually(lambda: json.loads(supervisor("status", "one").stdout)["state"] == "failed")
    assert run_processes(efs)
    assert json.loads(supervisor("stop", "one").stdout)["state"] == "failed"
    assert not run_processes(efs)


def test_following_tells_state_then_metrics_then_the_end(efs: Path, supervisor: Call) -> None:
    script = 'for n in 0 1 2; do echo "{\\"event\\":\\"step\\",\\"step\\":$n}" >> $RUN/metrics.jsonl; sleep 0.2; done'
    supervisor("start", stdin=spec(efs, "one", script))
    messages = [json.loads(line) for line in supervisor("follow", "one", "--from-line", "1").stdout.splitlines()]
    assert [m["line"] for m in messages if m["type"] == "metric"] == [1, 2]
    assert (messages[-1]["type"], messages[-1]["state"]) == ("state", "succeeded")


def test_the_log_of_one_rank_is_told_apart(efs: Path, supervisor: Call) -> None:
    supervisor(
        "start", stdin=spec(efs, "one", "echo '[0]<stdout>:zero'; echo '[10]<stderr>:ten'; printf '[0]<stderr>:last'")
    )
    final_state(efs, "one")
    assert supervisor("logs", "one", "--rank", "0").stdout.splitlines() == ["[0]<stdout>:zero", "[0]<stderr>:last"]
    assert supervisor("logs", "one", "-f", "--rank", "10").stdout.splitlines() == ["[10]<stderr>:ten"]
    assert "ten" in supervisor("logs").stdout


def test_a_run_id_is_used_once_and_an_unknown_one_is_named(efs: Path, supervisor: Call) -> None:
    assert supervisor("status").returncode == 4
    supervisor("start", stdin=spec(efs, "one", "true"))
    final_state(efs, "one")
    again = supervisor("start", stdin=spec(efs, "one", "true"))
    assert (again.returncode, "exists already" in again.stderr) == (1, True)
    unknown = supervisor("status", "two")
    assert (unknown.returncode, "no run two" in unknown.stderr) == (4, True)


def test_what_is_no_spec_leaves_nothing_behind(efs: Path, supervisor: Call) -> None:
    refused = supervisor("start", stdin='{"run_id": "x"}')
    assert refused.returncode == 2
    assert not (efs / "runs").exists()


def test_all_runs_are_listed_oldest_first(efs: Path, supervisor: Call) -> None:
    for run_id in ("20261120-1", "20261120-2"):
        supervisor("start", stdin=spec(efs, run_id, "exit 0"))
        final_state(efs, run_id)
    assert [run["run_id"] for run in json.loads(supervisor("status", "--list").stdout)] == ["20261120-1", "20261120-2"]


def test_a_stopped_run_goes_on_in_its_own_directory(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "echo first; trap 'exit 1' TERM; sleep 6000 & wait"))
    live_state(efs, "one")
    assert json.loads(supervisor("stop", "one", "--grace", "5").stdout)["state"] == "stopped"
    (efs / "runs" / "one" / "checkpoints" / "step-00000007").mkdir(parents=True)
    done = supervisor("resume", stdin=spec(efs, "one", "echo second"))
    assert json.loads(done.stdout) == {"run_id": "one", "checkpoints": ["step-00000007"], "position": None}
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


def test_a_run_whose_supervisor_was_killed_goes_on_and_its_left_overs_do_not(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 600 & wait"))
    os.kill(live_state(efs, "one")["pid"], signal.SIGKILL)
    before = set(eventually(lambda: run_processes(efs)))
    assert json.loads(supervisor("show", "one").stdout)["state"]["reason"] == "supervisor died"
    assert supervisor("resume", stdin=spec(efs, "one", "exit 0")).returncode == 0
    assert final_state(efs, "one")["state"] == "succeeded"
    assert not before & set(run_processes(efs))


def test_a_live_run_is_neither_resumed_nor_removed(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    for done in (supervisor("remove", "one"), supervisor("resume", stdin=spec(efs, "one", "true"))):
        assert (done.returncode, json.loads(done.stdout)["live"]) == (3, "one")
    supervisor("stop", "one", "--grace", "0")


def test_an_ended_run_is_removed_whole_and_the_others_stay(efs: Path, supervisor: Call) -> None:
    for name in ("one", "two"):
        supervisor("start", stdin=spec(efs, name, "true"))
        final_state(efs, name)
    removed = json.loads(supervisor("remove", "one").stdout)
    assert (removed["run_id"], removed["files"] >= 3, removed["bytes"] > 0) == ("one", True, True)
    assert [entry.name for entry in (efs / "runs").iterdir() if not entry.name.startswith(".")] == ["two"]
    for done in (supervisor("remove", "one"), supervisor("show", "one"), supervisor("remove", "../two")):
        assert done.returncode == 4


def test_a_queued_run_waits_its_turn_and_they_go_in_order(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    for place, name in enumerate(("two", "three"), start=1):
        queued = supervisor("start", "--queue", stdin=spec(efs, name, "sleep 0.3"))
        assert (queued.returncode, json.loads(queued.stdout)["position"]) == (0, place)
    told = {run["run_id"]: run for run in json.loads(supervisor("status", "--list").stdout)}
    assert [(told[n]["state"], told[n]["position"]) for n in ("two", "three")] == [("queued", 1), ("queued", 2)]
    assert told["two"]["reason"] == "place 1 in the queue, after one"
    assert told["three"]["reason"] == "place 2 in the queue, after two"
    supervisor("stop", "one", "--grace", "0")
    states = [final_state(efs, name) for name in ("two", "three")]
    assert [state["state"] for state in states] == ["succeeded", "succeeded"]
    assert states[0]["updated"] <= states[1]["started"]
    eventually(lambda: not (efs / "runs" / ".live").exists())
    assert json.loads((efs / "runs" / ".queue").read_text()) == []


def test_nobody_pushes_in_before_those_who_wait(efs: Path, supervisor: Call) -> None:
    runs = Runs(root=efs / "runs")
    enqueue(runs, Submission.from_json(spec(efs, "one", "sleep 6000")))
    refused = supervisor("start", stdin=spec(efs, "two", "true"))
    assert (refused.returncode, json.loads(refused.stdout)) == (3, {"live": "one", "state": "queued"})
    assert supervisor("remove", "one").returncode == 3
    # Those commands were refused; one that is answered starts the scheduler.
    supervisor("status")
    live_state(efs, "one")
    supervisor("stop", "one", "--grace", "0")


def test_a_stop_takes_a_run_out_of_the_queue_and_a_resume_brings_it_back(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    supervisor("start", "--queue", stdin=spec(efs, "two", "true"))
    stopped = json.loads(supervisor("stop", "two").stdout)
    assert (stopped["state"], stopped["reason"], stopped["was_live"]) == ("stopped", "taken out of the queue", True)
    again = json.loads(supervisor("resume", "--queue", stdin=spec(efs, "two", "true")).stdout)
    assert (again["run_id"], again["position"]) == ("two", 1)
    twice = supervisor("resume", "--queue", stdin=spec(efs, "two", "true"))
    assert (twice.returncode, json.loads(twice.stdout)) == (3, {"live": "two", "state": "queued"})
    supervisor("stop", "one", "--grace", "0")
    assert final_state(efs, "two")["state"] == "succeeded"


def test_a_follower_of_a_queued_run_waits_with_it(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "until [ -e $RUN/go ]; do sleep 0.1; done"))
    supervisor("start", "--queue", stdin=spec(efs, "two", "true"))
    follow = [sys.executable, "-m", "agent.supervisor.cli", "--root", str(efs / "runs"), "follow", "two"]
    with subprocess.Popen(follow, cwd=efs / "payloads" / AGENT, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        assert (first["state"], first["reason"]) == ("queued", "place 1 in the queue, after one")
        (efs / "runs" / "one" / "go").touch()
        assert json.loads(following.stdout.read().splitlines()[-1])["state"] == "succeeded"


def test_the_queue_goes_on_after_a_killed_supervisor(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 600"))
    pid = live_state(efs, "one")["pid"]
    supervisor("start", "--queue", stdin=spec(efs, "two", "true"))
    os.kill(pid, signal.SIGKILL)
    assert final_state(efs, "two")["state"] == "succeeded"
    assert final_state(efs, "one")["reason"] == "supervisor died"


def test_what_a_booting_master_runs_tells_what_became_of_the_run_and_keeps_the_queue(
    efs: Path, supervisor: Call
) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 600"))
    state = live_state(efs, "one")
    os.kill(state["pid"], signal.SIGKILL)
    runs = Runs(root=efs / "runs")
    enqueue(runs, Submission.from_json(spec(efs, "two", "true")))
    for path in (efs / "runs" / "one" / "state.json", efs / "runs" / ".live"):
        path.write_text(path.read_text().replace(state["owner"]["boot_id"], "of-before-the-reboot"))
    assert run_processes(efs)
    subprocess.run([efs / "runs" / ".at-boot"], check=True, timeout=60)
    assert final_state(efs, "one")["reason"] == "supervisor died: the master was rebooted"
    assert final_state(efs, "two")["state"] == "succeeded"
    eventually(lambda: not run_processes(efs))


def old_spec(efs: Path, run_id: str, script: str) -> str:
    """Write the spec of a run as a version without trees of the agent's own did."""
    document = json.loads(spec(efs, run_id, script))
    del document["agent"]
    return json.dumps(document)


def test_a_run_of_an_older_version_can_be_shown_and_is_not_started(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "exit 1"))
    final_state(efs, "one")
    path = efs / "runs" / "one" / "spec.json"
    path.write_text(old_spec(efs, "one", "exit 1"))
    shown = json.loads(supervisor("show", "one").stdout)
    assert (shown["spec"]["payload"], "agent" in shown["spec"]) == (PAYLOAD, False)
    eventually(lambda: not (efs / "runs" / ".live").exists())
    for verb in ("start", "resume"):
        refused = supervisor(verb, stdin=old_spec(efs, "one" if verb == "resume" else "two", "true"))
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "names no agent: an older version launched the run; `fab resume" in refused.stderr
    assert not (efs / "runs" / "two").exists()
    assert json.loads((efs / "runs" / "one" / "state.json").read_text())["reason"].startswith("the launcher ended")


def test_a_queued_run_of_an_older_version_fails_with_the_remedy(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    assert supervisor("start", "--queue", stdin=spec(efs, "two", "true")).returncode == 0
    (efs / "runs" / "two" / "spec.json").write_text(old_spec(efs, "two", "true"))
    supervisor("stop", "one", "--grace", "0")
    state = final_state(efs, "two")
    assert (state["state"], "`fab resume two` continues it" in state["reason"]) == ("failed", True)


def files_of(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return the time of each file's last change and its content."""
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("status", "one"), '"failed"'), (("status", "--list"), '"failed"'), (("status", "--live"), "null"),
        (("show", "one"), '"failed"'), (("follow", "one"), '"failed"'), (("logs", "one"), "a line"),
        (("follow", "one", "--log-from", "0"), "a line"), (("logs", "one", "-f"), "a line"),
    ],
)  # fmt: skip
def test_reading_a_run_whose_supervisor_is_gone_shows_it_failed_and_writes_nothing(
    efs: Path, supervisor: Call, words: tuple[str, ...], shown: str
) -> None:
    runs, gone = Runs(root=efs / "runs"), subprocess.Popen(["sleep", "60"])
    owner = ProcessIdentity.of(gone.pid)
    gone.kill()
    gone.wait()
    runs["one"].path.mkdir(parents=True)
    runs["one"].spec.write_text(spec(efs, "one", "true"))
    runs["one"].log.write_text("a line\n")
    runs["one"].write_state(State(run_id="one", state="running", owner=owner, started=1.0, updated=2.0))
    runs.claim("one", owner)
    before = files_of(efs / "runs")
    done = supervisor(*words)
    assert (done.returncode, files_of(efs / "runs")) == (0, before), done.stderr
    assert shown in done.stdout
