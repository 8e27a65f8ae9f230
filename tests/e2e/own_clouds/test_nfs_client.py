"""The whole path where each node sees the shared file system through the caches of an NFS client."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import EmbeddedCloud, start_cloud
from tests.waiting import eventually
from tools import demo


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedCloud]:
    """Start a cloud whose hosts have the caches, and deploy on it."""
    with start_cloud(f"n{os.getpid()}", "--nfs-client") as cloud:
        cloud.fab("up", "--yes")
        yield cloud


def on_workers(cloud: EmbeddedCloud, *words: str) -> dict[str, str]:
    """Run a command on all workers; return what each said by its name."""
    answer = json.loads(cloud.laptop("fab", "run", "--json", *demo.settings(2), "--", *words).stdout)
    assert answer["failed"] == []
    return {host["name"]: host["stdout"].strip() for host in answer["hosts"]}


def start(cloud: EmbeddedCloud, *words: str) -> str:
    """Start or queue a run and leave it; return its id."""
    found = re.search(r"run (\S+): 2 ranks", cloud.fab("train", "--nodes", "2", "--yes", "--detach", *words).stdout)
    assert found is not None
    return found[1]


def record(cloud: EmbeddedCloud, run: str, *words: str) -> Any:
    """Return the record of a run."""
    return json.loads(cloud.fab("show", "--run", run, "--json", *words).stdout)


def test_a_run_right_after_the_deployment_trains_and_the_next_in_the_queue_follows_a_stop(own: EmbeddedCloud) -> None:
    first = start(own, "--epochs", "5000")
    second = start(own, "--epochs", "2", "--queue")
    eventually(lambda: own.run(first).last_epoch(), what=lambda: own.run(first).state)
    stopped = own.fab("stop", "--run", first).stdout
    assert f"run {first}: stopped" in stopped
    eventually(lambda: own.run(second).state not in ("queued", "starting", "running"))
    told = own.fab("attach", "--run", second).stdout
    assert re.findall(r"^epoch (\d)/2, [\d,]+ images/s, .*test", told, flags=re.MULTILINE) == ["1", "2"]
    assert f"run {second} succeeded" in told

    kept = record(own, second)
    written = json.loads((own.run(second).path / "result.json").read_text())
    assert kept["result"] == record(own, second, "--from-bucket")["result"] == written
    assert kept["checkpoints"] == own.run(second).checkpoints
    assert kept["course"].get("trouble") is None
    assert record(own, first)["checkpoints"] == own.run(first).checkpoints != []


def test_every_worker_has_a_name_and_a_mount_of_its_own(own: EmbeddedCloud) -> None:
    workers = {"deeplearning-worker1", "deeplearning-worker2"}
    named = on_workers(own, "sh", "-c", "cut -d' ' -f1 /opt/deeplearning/nodes | sort | xargs")
    assert named == dict.fromkeys(workers, "deeplearning-master deeplearning-worker1 deeplearning-worker2")
    assert on_workers(own, "stat", "--file-system", "--format=%T", "/mnt/efs") == dict.fromkeys(workers, "fuseblk")
