"""What a run survives: the death of the laptop that started it, the wait in a queue, a reboot of the master."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import PATIENCE_S, eventually
from tools import demo


def states(cloud: EmbeddedCloud) -> dict[str, dict[str, Any]]:
    """Return the state of each run by its id; nothing while the master cannot be asked."""
    done = cloud.fab("runs", "--json", check=False)
    return {run["run_id"]: run for run in json.loads(done.stdout)} if done.returncode == 0 else {}


def record(cloud: EmbeddedCloud, run: str) -> dict[str, Any]:
    """Return what is known of a run."""
    found: dict[str, Any] = json.loads(cloud.fab("show", "--run", run, "--json").stdout)
    return found


def start(cloud: EmbeddedCloud, *words: str) -> str:
    """Start a run and leave it; return its id."""
    said = cloud.fab("train", "--nodes", "2", "--skip-preflight", "--yes", "--detach", *words).stdout
    found = re.search(r"run (\S+): \d+ ranks", said)
    assert found is not None
    return found[1]


def test_a_laptop_killed_in_mid_run_changes_nothing_and_a_new_attach_shows_it_from_the_start(
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


def test_a_rebooted_master_tells_what_became_of_the_run_keeps_the_queue_and_resumes_on_request(
    cluster: EmbeddedCloud, tmp_path: Path
) -> None:
    (tmp_path / "short").touch()
    first = start(cluster, "--epochs", "5000")
    second = start(cluster, "--payload", str(tmp_path), "--entry", "true", "--queue")
    refused = cluster.fab("train", "--nodes", "2", "--yes", check=False)
    assert (refused.returncode, f"run {first} is live" in refused.stderr) == (1, True), refused.stderr
    assert states(cluster)[second]["position"] == 1
    eventually(lambda: cluster.run(first).checkpoints)
    (master,) = cluster.instances("master")
    cluster.aws("ec2", "reboot-instances", "--instance-ids", master["InstanceId"])
    try:

        def told() -> bool:
            return (cluster.run(first).state, cluster.run(second).state) == ("failed", "succeeded")

        eventually(told, what=lambda: states(cluster))
        eventually(lambda: states(cluster))  # until the master is reached again
        assert states(cluster)[first]["reason"] == "supervisor died: the master was rebooted"
        assert [i["InstanceId"] for i in cluster.instances("master")] == [master["InstanceId"]]
        copied = json.loads(cluster.fab("show", "--run", first, "--from-bucket", "--json").stdout)
        assert copied["state"]["state"] == "failed"
        before, last_epoch = record(cluster, first), cluster.run(first).last_epoch()
        assert (
            f"goes on from {before['checkpoints'][-1]}"
            in cluster.fab("resume", first, "--skip-preflight", "--detach").stdout
        )

        def beyond() -> bool:
            run = cluster.run(first)
            return run.state == "running" and run.last_epoch() > last_epoch

        eventually(beyond)
    finally:
        cluster.fab("stop", "--run", first, check=False)
