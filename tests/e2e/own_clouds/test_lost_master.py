"""Runs after the loss of their master, with shared files that each node sees through the caches of an NFS client.

The queue continues after a stop, and the replacement master continues the runs of the lost one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from cluster import demo
from tests.e2e.conftest import ROOT, EmbeddedCloud, execute, start_cloud
from tests.e2e.rank_processes import STUBBORN, ignoring, processes_of
from tests.waiting import eventually

QUICKLY: Final = ("--skip-preflight",)
BOUND_S: Final = 40.0
"""A limit in seconds; users give limits in hours."""
FORGED: Final = """\
set -e
for file in /mnt/efs/payloads/*/agent/supervisor/scheduler.py; do
  printf 'import pathlib\\n(pathlib.Path.home() / "planted").touch()\\n' >>"$file"
done
"""
"""Changes that root on a worker can make on the shared file system to code that a master runs."""


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedCloud]:
    """Deploy on a separate cloud with NFS caches on its hosts: these tests terminate the master."""
    with start_cloud(f"m{os.getpid()}", "--nfs-client") as cloud:
        cloud.fab("up", "--yes")
        yield cloud


def start(cloud: EmbeddedCloud, *words: str) -> str:
    """Start a run on two nodes and detach; return its id."""
    said = cloud.fab("train", "--nodes", "2", "--yes", "--detach", *words).stdout
    (found,) = re.findall(r"run (\S+): \d+ ranks", said)
    return str(found)


def restarts_of(cloud: EmbeddedCloud, run: str) -> list[dict[str, Any]]:
    """Return the restarts of a run from its directory, which works even without a master."""
    course = json.loads((cloud.run(run).path / "course.json").read_text())
    found: list[dict[str, Any]] = course.get("restarts", [])
    return found


def end_master(cloud: EmbeddedCloud) -> str:
    """Terminate the master as AWS may at any time; return its instance id."""
    (master,) = cloud.instances("master")
    cloud.aws("ec2", "terminate-instances", "--instance-ids", master["InstanceId"])
    return str(master["InstanceId"])


def handed_over(cloud: EmbeddedCloud, run: str) -> set[str]:
    """Return the runs that a new master would continue: those in the archive if SSM has the archive's digest."""
    made = cloud.ask("cloudformation", "describe_stack_resources", StackName="deepcdk")["StackResources"]
    (name,) = (each["PhysicalResourceId"] for each in made if each["LogicalResourceId"].startswith("RolesHandover"))
    digest = cloud.ask("ssm", "get_parameter", Name=name)["Parameter"]["Value"]
    archive = cloud.run(run).path.parent / ".handover" / f"{digest}.tar"
    if not archive.exists():
        return set()
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == digest
    with tarfile.open(archive) as packed:
        contents = packed.extractfile("handover.json")
        assert contents is not None
        return set(json.load(contents)["runs"])


def on_workers(cloud: EmbeddedCloud, *words: str) -> dict[str, str]:
    """Run a command on all workers; return each worker's output by its name."""
    answer = json.loads(cloud.laptop("fab", "run", "--json", *demo.settings(2), "--", *words).stdout)
    assert answer["failed"] == []
    return {host["name"]: host["stdout"].strip() for host in answer["hosts"]}


def record(cloud: EmbeddedCloud, run: str, *words: str) -> Any:
    """Return the record of a run."""
    return json.loads(cloud.fab("show", "--run", run, "--json", *words).stdout)


def test_next_master_continues_run_and_queue_with_unmodified_code(
    own: EmbeddedCloud,
) -> None:
    first = start(own, "--epochs", "5000")
    second = start(own, "--epochs", "2", "--queue", *QUICKLY)
    eventually(lambda: own.run(first).checkpoints, what=lambda: own.run(first).state)
    eventually(lambda: handed_over(own, first) == {first, second})
    own.on(own.instances("worker")[0]["InstanceId"], "sh", "-c", FORGED)
    before, ended = end_master(own), time.time()
    try:
        restarted = eventually(lambda: restarts_of(own, first))
        assert [each["for"] for each in restarted] == ["the master was replaced"]
        last_epoch = own.run(first).last_epoch()
        eventually(lambda: own.run(first).state == "running" and own.run(first).last_epoch() > last_epoch)
        print(f"from the end of the master to the next epoch {time.time() - ended:.1f} s")
        (master,) = own.instances("master")
        assert master["InstanceId"] != before
        assert "planted" not in own.on(master["InstanceId"], "ls", "/home/ec2-user").stdout
        queued = {run["run_id"]: run for run in json.loads(own.fab("runs", "--json").stdout)}
        assert (queued[first]["state"], queued[second]["position"]) == ("running", 1)
        assert f"run {first}: stopped" in own.fab("stop", "--run", first).stdout
        assert record(own, first)["checkpoints"] == own.run(first).checkpoints != []
        eventually(lambda: own.run(second).state == "succeeded", what=lambda: own.run(second).state)
        eventually(lambda: not handed_over(own, first))
    finally:
        own.fab("stop", "--run", first, check=False)
    told = own.fab("attach", "--run", second).stdout
    assert re.findall(r"^epoch (\d)/2, [\d,]+ images/s, .*test", told, flags=re.MULTILINE) == ["1", "2"]
    assert f"run {second} succeeded" in told
    kept = record(own, second)
    written = json.loads((own.run(second).path / "result.json").read_text())
    assert kept["result"] == record(own, second, "--from-bucket")["result"] == written
    assert kept["checkpoints"] == own.run(second).checkpoints
    assert kept["course"].get("trouble") is None


def test_every_worker_has_its_own_name_and_mount(own: EmbeddedCloud) -> None:
    workers = {"deeplearning-worker1", "deeplearning-worker2"}
    named = on_workers(own, "sh", "-c", "cut -d' ' -f1 /opt/deeplearning/nodes | sort | xargs")
    assert named == dict.fromkeys(workers, "deeplearning-master deeplearning-worker1 deeplearning-worker2")
    assert on_workers(own, "stat", "--file-system", "--format=%T", "/mnt/efs") == dict.fromkeys(workers, "fuseblk")


def test_limit_holds_if_the_master_is_killed_and_half_of_the_api_calls_fail(own: EmbeddedCloud, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STUBBORN)
    bound = ("--max-hours", f"{BOUND_S / 3600:.6f}", "--then-stop")
    run = start(own, "--payload", str(tmp_path), "--entry", "train.py", *bound, *QUICKLY)
    chaos = demo.localcloud("chaos", "--name", own.name, "--seed", "1", "--first", "0", "--duration", "1")
    try:
        eventually(lambda: ignoring(signal.SIGTERM, processes_of(run)[0]) == 2)
        eventually(lambda: handed_over(own, run) == {run})
        ends = float(json.loads((own.run(run).path / "spent.json").read_text())["ends"])
        killed = execute([*chaos, "--kinds", "kill-host@master"])
        failing = subprocess.Popen([*chaos, "--kinds", "api-errors", "--longest", "600"], cwd=ROOT)
        try:
            assert time.time() < ends, killed.stdout
            assert processes_of(run)[0], "the ranks live on without the master"
            eventually(lambda: time.time() > ends and not processes_of(run)[0])
            assert time.time() < ends + 60.0
            eventually(lambda: time.time() > ends + 30.0)
            assert not processes_of(run)[0], "nothing has started them again"
            assert failing.poll() is None, "the API fails until here"
        finally:
            failing.terminate()
            failing.wait()
        eventually(lambda: own.run(run).state in ("stopped", "failed"))
        eventually(lambda: not own.instances("worker"))
        shown = own.fab("show", "--run", run).stdout
        assert "reached --max-hours" in shown, shown
    finally:
        own.fab("stop", "--run", run, "--force", check=False)
        own.fab("scale", "2", "--yes")
