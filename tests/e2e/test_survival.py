"""A run survives the loss of its laptop or supervisor and a reboot of the master, but never exceeds its limit."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tests.e2e.rank_processes import STUBBORN, processes_of
from tests.waiting import PATIENCE_S, eventually


def states(cloud: EmbeddedCloud) -> dict[str, dict[str, Any]]:
    """Return the state of each run by its id, or nothing while the master cannot be reached."""
    done = cloud.fab("runs", "--json", check=False)
    return {run["run_id"]: run for run in json.loads(done.stdout)} if done.returncode == 0 else {}


def record(cloud: EmbeddedCloud, run: str) -> dict[str, Any]:
    """Return the record of a run."""
    found: dict[str, Any] = json.loads(cloud.fab("show", "--run", run, "--json").stdout)
    return found


def start(cloud: EmbeddedCloud, *words: str) -> str:
    """Start a run and detach; return its id."""
    said = cloud.fab("train", "--nodes", "2", "--skip-preflight", "--yes", "--detach", *words).stdout
    found = re.search(r"run (\S+): \d+ ranks", said)
    assert found is not None
    return found[1]


def test_run_survives_a_killed_laptop_and_attach_shows_it_from_the_start(
    cluster: EmbeddedCloud,
) -> None:
    command = demo.localcloud("run", "--name", cluster.name, "--", "fab", "train", "--nodes", "2", "--epochs", "16")
    following = subprocess.Popen(
        [*command, "--skip-preflight", "--yes", *demo.settings(2)],
        cwd=demo.ROOT,
        env=demo.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert following.stdout is not None
    run = ""
    for line in following.stdout:
        run = run or next(iter(re.findall(r"run (\S+): 2 ranks", line)), "")
        if line.startswith("epoch 2/16"):
            break
    killed = time.time()
    following.send_signal(signal.SIGKILL)
    assert following.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    following.stdout.close()
    shown = cluster.fab("attach", "--run", run).stdout
    epochs = re.findall(r"^epoch (\d+)/16, [\d,]+ images/s, .*test", shown, flags=re.MULTILINE)
    assert epochs == [str(epoch) for epoch in range(1, 17)]
    assert f"run {run} succeeded" in shown
    assert record(cluster, run)["course"]["times"]["ended"] > killed


PLANTS: Final = """\
set -e
printf '#!/bin/sh\\ntouch ~/planted\\n' >/mnt/efs/runs/.at-boot
chmod 755 /mnt/efs/runs/.at-boot
for file in /mnt/efs/payloads/*/agent/supervisor/scheduler.py; do
  printf 'import pathlib\\n(pathlib.Path.home() / "planted").touch()\\n' >>"$file"
done
"""
"""Files that a rank can leave on the shared file system in the hope that the master runs them at its next boot."""


def supervisors_of(run: str) -> list[int]:
    """Return the pids of a run's supervisors, on all hosts of all clouds."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0") if path.name.isdecimal() else []
            if b"supervise" in words and run.encode() in words:
                found.append(int(path.name))
    return found


def restarts_of(cloud: EmbeddedCloud, run: str) -> list[dict[str, Any]]:
    """Return the restarts of a run from its directory, which works even without the master."""
    course = json.loads((cloud.run(run).path / "course.json").read_text())
    found: list[dict[str, Any]] = course.get("restarts", [])
    return found


def first_step_after(cloud: EmbeddedCloud, run: str, at: float) -> float:
    """Return when the ranks that started after a given time first recorded a step or epoch (both in s since 1970).

    Returns 0 if they have not done so.
    """
    lines = (cloud.run(run).path / "metrics.jsonl").read_text().splitlines()
    events = [(json.loads(line)["event"], float(json.loads(line)["time"])) for line in lines if line.endswith("}")]
    began = min((time for event, time in events if event == "start" and time > at), default=math.inf)
    return min((time for event, time in events if event in ("step", "epoch") and time > began), default=0.0)


def test_run_continues_after_its_supervisor_is_killed_and_is_followed_to_its_end(
    cluster: EmbeddedCloud,
) -> None:
    run = start(cluster, "--recipe", "digits", "--notify", "cat >> told; echo >> told")
    try:
        eventually(lambda: len(cluster.run(run).checkpoints) > 1)
        (supervisor,) = supervisors_of(run)
        os.kill(supervisor, signal.SIGKILL)
        killed = time.time()
        shown = cluster.fab("attach", "--run", run).stdout
        assert f"run {run} succeeded" in shown
        found, went_on = record(cluster, run), first_step_after(cluster, run, killed)
        (restart,) = found["course"]["restarts"]
        assert restart["for"] == "its supervisor was lost"
        assert (found["state"]["state"], found["attempts"], found["result"]["epochs"]) == ("succeeded", 2, 20)
        assert found["result"]["test_accuracy"] > 0.97
        assert found["state"]["started"] < killed, "its cost counts from the launch"
        metrics = [json.loads(line) for line in (cluster.run(run).path / "metrics.jsonl").read_text().splitlines()]
        assert any(event.get("resumed_from") for event in metrics if event["event"] == "start")
        assert any(event["event"] == "stopped" for event in metrics), "the ranks that it left wrote a checkpoint"
        events = [json.loads(line) for line in (cluster.run(run).path / "told").read_text().split("\n") if line]
        assert [event["event"] for event in events] == ["restarted", "ended"]
        assert went_on - killed < 60.0
        print(f"from the kill to the next step {went_on - killed:.1f} s")
    finally:
        cluster.fab("stop", "--run", run, "--force", check=False)


def test_run_continues_after_a_reboot_of_the_master_before_the_queue(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "short").touch()
    first = start(cluster, "--epochs", "5000")
    second = start(cluster, "--payload", str(tmp_path), "--entry", "true", "--queue")
    eventually(lambda: cluster.run(first).checkpoints)
    cluster.fab("run", "--nodes", "1", "--", "sh", "-c", PLANTS)
    (master,) = cluster.instances("master")
    cluster.aws("ec2", "reboot-instances", "--instance-ids", master["InstanceId"])
    rebooted = time.time()
    try:
        restarted = eventually(lambda: restarts_of(cluster, first))
        assert [each["for"] for each in restarted] == ["the master was rebooted"]
        went_on = eventually(lambda: first_step_after(cluster, first, float(restarted[0]["time"])))
        assert cluster.run(first).state == "running"
        print(f"from the reboot to the next step {went_on - rebooted:.1f} s")
        eventually(lambda: states(cluster))  # until the master can be reached again
        assert [i["InstanceId"] for i in cluster.instances("master")] == [master["InstanceId"]]
        assert cluster.fab("run", "--master", "--", "sh", "-c", "ls ~ | grep planted; true").stdout.strip() == ""
        assert states(cluster)[second]["position"] == 1
        cluster.fab("stop", "--run", first)
        assert "the grace period is over" not in cluster.fab("logs", "--run", first).stdout
        eventually(lambda: cluster.run(second).state == "succeeded", what=lambda: states(cluster))
        copied = json.loads(cluster.fab("show", "--run", first, "--from-bucket", "--json").stdout)
        assert (copied["state"]["state"], len(copied["course"]["restarts"])) == ("stopped", 1)
    finally:
        for each in (second, first):
            cluster.fab("stop", "--run", each, check=False)


BOUND_S: Final = 40.0
"""Enough for two prepared nodes. It is in seconds; users give limits in hours."""


def test_run_that_ignores_sigterm_stops_within_60_s_of_its_limit(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STUBBORN)
    run = start(cluster, "--payload", str(tmp_path), "--entry", "train.py", "--max-hours", "10", "--restarts", "0")

    def spent() -> dict[str, Any]:
        found: dict[str, Any] = record(cluster, run)["spent"]
        return found

    try:
        eventually(lambda: processes_of(run)[0])
        cluster.fab("stop", "--run", run, "--force")
        before_s = spent()["seconds"]
        refused = cluster.fab("resume", run, "--max-hours", "0.000001", "--yes", check=False)
        assert (refused.returncode, "has reached --max-hours 1e-06" in refused.stderr) == (1, True), refused.stderr
        hours = ("--max-hours", f"{(before_s + BOUND_S) / 3600:.6f}")
        ended = cluster.fab("resume", run, *hours, "--skip-preflight", "--yes", check=False)
        assert not processes_of(run)[0]
        assert ended.returncode == 3, ended.stdout + ended.stderr
        assert f"run {run} stopped" in ended.stderr and "it has reached --max-hours" in ended.stderr
        assert "warning" not in ended.stderr
        assert "80% of a limit is used" in ended.stdout
        assert "the grace period is over: sending SIGKILL to the ranks" in cluster.fab("logs", "--run", run).stdout
        assert before_s + BOUND_S <= spent()["seconds"] < before_s + BOUND_S + 60.0
        assert "reached --max-hours" in cluster.fab("show", "--run", run).stdout
    finally:
        cluster.fab("stop", "--run", run, "--force", check=False)


def test_then_stop_terminates_workers_after_the_last_run(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "short").touch()
    entry = ("--payload", str(tmp_path), "--entry")
    first = start(cluster, *entry, "sleep 20", "--then-stop", "--notify", "cat >> events", "--notify", "false")
    last = start(cluster, *entry, "true", "--queue")
    try:
        eventually(lambda: cluster.run(last).state == "succeeded")
        eventually(lambda: not cluster.instances("worker"), what=lambda: cluster.instances("worker"))
        told = [record(cluster, run)["course"].get("workers") for run in (first, last)]
        assert told == [f"the workers are kept for run {last}, which is queued", "stopping all workers"]
        (event,) = [json.loads(line) for line in (cluster.run(first).path / "events").read_text().splitlines()]
        assert (event["event"], event["text"]) == ("ended", f"run {first} succeeded")
        shown = cluster.fab("show", "--run", first).stdout
        assert "--notify number 2 could not report that the run has ended: exit status 1" in shown
        (master,) = cluster.instances("master")
        assert master["State"]["Name"] == "running"
    finally:
        cluster.fab("scale", "2", "--yes")


FREEZING: Final = """\
import os, pathlib, signal, time
import tensorflow as tf
import horovod.tensorflow as hvd
rank, size = os.environ["HOROVOD_RANK"], int(os.environ["HOROVOD_SIZE"])
pathlib.Path(f"here-{rank}").touch()
while len(list(pathlib.Path().glob("here-*"))) < size:  # the time-out is shorter than an import may take
    time.sleep(0.1)
hvd.init()
for step in range(1000000):
    if step == 20 and rank == "1":
        os.kill(os.getpid(), signal.SIGSTOP)
    hvd.allreduce(tf.ones([1000]), name="gradients")
"""


def test_gloo_timeout_names_the_missing_rank(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FREEZING)
    program = ("--payload", str(tmp_path), "--entry", "train.py", "--env", "HOROVOD_GLOO_TIMEOUT_SECONDS=10")
    run = start(cluster, *program, "--restarts", "0")
    try:
        eventually(lambda: cluster.run(run).state in ("failed", "succeeded"))
        assert "Process name: 0\n" in cluster.fab("logs", "--run", run).stdout, "the other rank exited first"
        assert record(cluster, run)["state"]["reason"] == (
            "rank 1 on deeplearning-worker2 printed no error when a collective timed out after 10 s, but rank 0 did: "
            "the rank hung, or its node was cut off"
        )
    finally:
        cluster.fab("stop", "--run", run, "--force", check=False)
