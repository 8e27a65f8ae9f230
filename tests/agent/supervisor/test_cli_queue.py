"""The queue through the supervisor's command line: waiting runs, their order, stops and crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from agent.runs import liveness, run_queue, trusted_spec
from agent.runs.node_claims import Runs
from agent.spec.submission import Submission
from agent.supervisor.submit import enqueue
from tests.agent.supervisor.live_runs import (
    Call,
    final_state,
    live_state,
    run_processes,
    spec,
    supervisor_of,
)
from tests.factories import AGENT
from tests.waiting import eventually


def test_queued_runs_start_in_order(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    for place, name in enumerate(("two", "three"), start=1):
        queued = supervisor("start", "--queue", stdin=spec(efs, name, "sleep 0.3"))
        assert (queued.returncode, json.loads(queued.stdout)["position"]) == (0, place)
    told = {run["run_id"]: run for run in json.loads(supervisor("status", "--list").stdout)}
    assert [(told[n]["state"], told[n]["position"]) for n in ("two", "three")] == [("queued", 1), ("queued", 2)]
    assert told["two"]["reason"] == "position 1 in the queue, after one"
    assert told["three"]["reason"] == "position 2 in the queue, after two"
    supervisor("stop", "one", "--grace", "0")
    states = [final_state(efs, name) for name in ("two", "three")]
    assert [state["state"] for state in states] == ["succeeded", "succeeded"]
    assert states[0]["updated"] <= states[1]["started"]
    eventually(lambda: not Runs(root=efs / "runs").claims())
    assert run_queue.ids() == []


def test_ranks_may_enter_a_runs_directory_only_while_the_run_is_live(efs: Path, supervisor: Call) -> None:
    def modes() -> list[int]:
        return [(efs / "runs" / name).stat().st_mode & 0o7777 for name in ("one", "two")]

    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    supervisor("start", "--queue", stdin=spec(efs, "two", "sleep 6000"))
    assert modes() == [0o1770, 0o700]
    supervisor("stop", "one", "--grace", "0")
    supervisor_of_two = supervisor_of(efs, "two")
    assert modes() == [0o700, 0o1770]
    os.kill(supervisor_of_two, signal.SIGKILL)
    # This happens before any other rank starts, because all ranks have the same user.
    supervisor("start", stdin=spec(efs, "three", "sleep 6000"))
    assert modes() == [0o700, 0o700]


def sweep(efs: Path, *scripts: str) -> str:
    """Return the request to queue a sweep of these scripts: runs r1, r2 and so on."""
    documents = [json.loads(spec(efs, f"r{number}", script)) for number, script in enumerate(scripts, 1)]
    for number, document in enumerate(documents, 1):
        document["trial"] |= {"sweep": "s", "number": number, "repeat": 1, "seed": 1, "first": "r1"}
    return json.dumps({"origin": {}, "runs": [{"spec": document, "estimate": {}} for document in documents]})


def test_failed_run_of_a_sweep_does_not_stop_the_others(efs: Path, supervisor: Call) -> None:
    queued = supervisor("enqueue", stdin=sweep(efs, "true", "exit 3", "true"))
    assert json.loads(queued.stdout) == {"run_ids": ["r1", "r2", "r3"]}
    assert [final_state(efs, name)["state"] for name in ("r1", "r2", "r3")] == ["succeeded", "failed", "succeeded"]
    listed = json.loads(supervisor("status", "--list").stdout)
    assert [(run["trial"]["sweep"], run["trial"]["number"]) for run in listed] == [("s", 1), ("s", 2), ("s", 3)]


def test_other_runs_of_sweep_are_held_if_first_fails_immediately(efs: Path, supervisor: Call) -> None:
    supervisor("enqueue", stdin=sweep(efs, "exit 3", "true", "true"))
    states = [final_state(efs, name) for name in ("r1", "r2", "r3")]
    assert [state["state"] for state in states] == ["failed", "stopped", "stopped"]
    assert states[1]["reason"].startswith("not started: r1, the first run of sweep s, failed immediately: ")
    assert supervisor("enqueue", stdin="{}").returncode == 2


def test_new_run_does_not_overtake_waiting_runs(efs: Path, supervisor: Call) -> None:
    runs = Runs(root=efs / "runs")
    enqueue(runs, Submission.from_json(spec(efs, "one", "sleep 6000")))
    refused = supervisor("start", stdin=spec(efs, "two", "true"))
    assert (refused.returncode, json.loads(refused.stdout)) == (3, {"live": "one", "state": "queued", "held": []})
    assert supervisor("remove", "one").returncode == 3
    # Rejected commands do not start the scheduler; a successful one does.
    supervisor("status")
    live_state(efs, "one")
    supervisor("stop", "one", "--grace", "0")


def test_stop_removes_run_from_queue_and_resume_adds_it_again(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    supervisor("start", "--queue", stdin=spec(efs, "two", "true"))
    stopped = json.loads(supervisor("stop", "two").stdout)
    assert (stopped["state"], stopped["reason"], stopped["was_live"]) == ("stopped", "removed from the queue", True)
    again = json.loads(supervisor("resume", "--queue", stdin=spec(efs, "two", "true")).stdout)
    assert (again["run_id"], again["position"]) == ("two", 1)
    twice = supervisor("resume", "--queue", stdin=spec(efs, "two", "true"))
    held = [{"run_id": "one", "hosts": []}]
    assert (twice.returncode, json.loads(twice.stdout)) == (3, {"live": "two", "state": "queued", "held": held})
    supervisor("stop", "one", "--grace", "0")
    assert final_state(efs, "two")["state"] == "succeeded"


def test_follower_of_a_queued_run_waits_with_it(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "until [ -e $RUN/go ]; do sleep 0.1; done"))
    supervisor("start", "--queue", stdin=spec(efs, "two", "true"))
    follow = [sys.executable, "-m", "agent.supervisor.cli", "--root", str(efs / "runs"), "follow", "two"]
    with subprocess.Popen(follow, cwd=efs / "payloads" / AGENT, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        assert (first["state"], first["reason"]) == ("queued", "position 1 in the queue, after one")
        (efs / "runs" / "one" / "go").touch()
        assert json.loads(following.stdout.read().splitlines()[-1])["state"] == "succeeded"


def test_queue_continues_after_killed_supervisor(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 600"))
    pid = supervisor_of(efs, "one")
    supervisor("start", "--queue", stdin=spec(efs, "two", "true"))
    os.kill(pid, signal.SIGKILL)
    assert final_state(efs, "two")["state"] == "succeeded"
    assert final_state(efs, "one")["reason"] == "supervisor died"


def test_booting_master_records_lost_run_and_keeps_queue(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 600"))
    os.kill(supervisor_of(efs, "one"), signal.SIGKILL)
    runs = Runs(root=efs / "runs")
    enqueue(runs, Submission.from_json(spec(efs, "two", "true")))
    (Path.home() / liveness.LOCKS / "one").write_text("of-before-the-reboot\n")
    assert run_processes(efs)
    assert not (efs / "runs" / ".at-boot").exists(), "every rank can write there"
    subprocess.run([efs / "home" / ".deepcdk" / "at-boot"], check=True, timeout=60)
    assert final_state(efs, "one")["reason"] == "supervisor died: the master was rebooted"
    assert final_state(efs, "two")["state"] == "succeeded"
    eventually(lambda: not run_processes(efs))


def test_queued_run_starts_as_submitted_despite_rewritten_spec_json(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    supervisor("start", "--queue", stdin=spec(efs, "two", "true"))
    supervisor("start", "--queue", stdin=spec(efs, "three", "true"))
    path = efs / "runs" / "two" / "spec.json"
    document = json.loads(path.read_text())
    document["launcher"] = ["/usr/bin/touch", str(efs / "launched")]
    document["notify"] = [f"touch {efs}/notified"]
    path.write_text(json.dumps(document))
    assert json.loads(supervisor("show", "two").stdout)["spec"]["notify"] == []
    supervisor("stop", "one", "--grace", "0")
    assert final_state(efs, "two")["state"] == "succeeded"
    assert final_state(efs, "three")["state"] == "succeeded"
    assert not [name for name in ("launched", "notified") if (efs / name).exists()]


def test_run_queued_by_a_rank_is_rejected(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    enqueue(Runs(root=efs / "runs"), Submission.from_json(spec(efs, "two", f"touch {efs}/launched")))
    trusted_spec.forget("two")  # A rank cannot write to the database.
    supervisor("stop", "one", "--grace", "0")
    assert "another master accepted run two" in final_state(efs, "two")["reason"]
    assert not (efs / "launched").exists()


def test_link_in_place_of_a_queued_runs_log_fails_the_run(efs: Path, supervisor: Call) -> None:
    supervisor("start", stdin=spec(efs, "one", "sleep 6000"))
    live_state(efs, "one")
    supervisor("start", "--queue", stdin=spec(efs, "two", "echo planted"))
    supervisor("start", "--queue", stdin=spec(efs, "three", "true"))
    mine = efs / "home" / ".bashrc"
    mine.write_text("mine\n")
    (efs / "runs" / "two" / "launcher.log").symlink_to(mine)
    supervisor("stop", "one", "--grace", "0")
    state = final_state(efs, "two")
    assert (state["state"], "could not start" in state["reason"], "launcher.log" in state["reason"]) == (
        "failed",
        True,
        True,
    )
    assert final_state(efs, "three")["state"] == "succeeded"
    assert mine.read_text() == "mine\n"
    assert "mine" not in (efs / "runs" / "two" / "state.json").read_text(), "every rank can read there"
