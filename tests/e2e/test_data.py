"""Staging data from the laptop to the shared file system and the workers' disks: interrupted, resumed and repaired."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.push_to_hosts import parse_link_bytes
from cluster import demo
from tests.e2e.conftest import ROOT, EmbeddedCloud
from tests.waiting import PATIENCE_S, eventually
from tests.words import NASTIEST

SIZES = {"a b.bin": 3_000_000, "sub/ü $(id).bin": 2_000_000, "large.bin": 200_000_000, "empty": 0} | {
    f"odd/{name}/{name}": len(name) for name in (*NASTIEST, "ü" * 127) if name and "/" not in name
}

LIST = """
import json, os, sys
found = [os.path.join(folder, name) for folder, _, names in os.walk(sys.argv[1]) for name in names]
print(json.dumps([os.path.relpath(path, sys.argv[1]) for path in found]))
"""

BALLAST = "/root/ballast"
NAME = "/opt/deepcdk/name"
"""File on a node with the name that the node takes again."""
FILL = """
import os

with open(os.path.expanduser("~/ballast"), "wb") as file:
    os.posix_fallocate(file.fileno(), 0, 1 << 40)
"""
"""Allocates all free space on the rank's disk. Nothing is written to the machine's disk."""
LEFT: Final = r"\d+ MiB free, 256 MiB needed; do: free space with `fab clean`"
"""The pre-flight's message, if the node could write the files that make it ready for the run."""
TOO_LITTLE: Final = r"No space left on device; do: free space on deeplearning-worker\d \(`fab clean`"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for number, (name, size) in enumerate(SIZES.items()):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(bytes([number + 1]) * size)
    return root


@pytest.fixture(scope="module")
def staged(cluster: EmbeddedCloud) -> Iterator[EmbeddedCloud]:
    yield cluster
    for worker in cluster.instances("worker"):
        cluster.on(worker["InstanceId"], "sh", "-c", "rm -rf /mnt/efs/data/e2e* /home/deepcdk-rank/files/data/e2e*")


def stage(cloud: EmbeddedCloud, folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    done = cloud.fab("stage-data", str(folder), "--name", "e2e", "--json", *words)
    return json.loads(done.stdout), done.stderr


def names(cloud: EmbeddedCloud, instance: str, directory: str) -> set[str]:
    return set(json.loads(cloud.on(instance, "python3", "-c", LIST, directory).stdout))


def test_interrupted_upload_keeps_complete_files_and_continues(staged: EmbeddedCloud, folder: Path) -> None:
    cloud, (master,) = staged, staged.instances("master")
    command = demo.localcloud("run", "--name", cloud.name, "--", "fab", "stage-data", str(folder), "--name", "e2e")
    process = subprocess.Popen(
        [*command, *demo.settings(2)],
        cwd=ROOT,
        env=demo.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    # Read the files from outside of the hosts, because a command in a host would take CPU time from the upload.
    shared = cloud.file_systems

    def under_way() -> bool:
        return any(shared.glob("*/data/e2e/a b.bin")) and any(shared.glob("*/data/.e2e.partial/*"))

    eventually(under_way)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    if process.returncode == 0:
        pytest.fail(f"the upload was over before it could be interrupted:\n{output}")
    assert "to continue, repeat the command" in output
    again, _ = stage(cloud, folder)
    assert 0 < again["uploaded_bytes"] <= sum(SIZES.values()) - SIZES["a b.bin"]
    assert names(cloud, master["InstanceId"], "/mnt/efs/data/e2e") == set(SIZES)


def test_shards_are_on_workers_and_nothing_is_uploaded_again(staged: EmbeddedCloud, folder: Path) -> None:
    told, _ = stage(staged, folder, "--to", "local", "--sharded")
    assert (told["uploaded_bytes"], told["directory"]) == (0, "/home/deepcdk-rank/files/data/e2e")
    parts = [names(staged, worker["InstanceId"], told["directory"]) for worker in staged.instances("worker")]
    assert parts[0] | parts[1] == set(SIZES) and not parts[0] & parts[1]
    owners = staged.laptop(
        "fab", "run", "--json", *demo.settings(2), "--", "stat", "-c", "%U", told["directory"]
    ).stdout
    assert {node["stdout"] for node in json.loads(owners)["hosts"]} == {"deepcdk-rank\n"}
    assert sum(node["bytes"] for node in told["nodes"].values()) == sum(SIZES.values())


def test_data_for_two_workers_is_uploaded_once(staged: EmbeddedCloud, tmp_path: Path) -> None:
    """Count all bytes sent and received, including AWS API calls and SSH. Sending the data twice would exceed 8 MB."""
    (tmp_path / "e2e-once").mkdir()
    for number in range(40):
        (tmp_path / "e2e-once" / str(number)).write_bytes(os.urandom(100_000))

    def link() -> int:
        return parse_link_bytes(staged.laptop("cat", "/proc/net/dev").stdout)

    before = link()
    told = json.loads(staged.fab("stage-data", str(tmp_path / "e2e-once"), "--json", "--to", "local").stdout)
    assert [node["came_bytes"] for node in told["nodes"].values()] == [4_000_000] * 2
    assert 4_000_000 < link() - before < 6_000_000


def test_damaged_file_is_reported_and_repaired(staged: EmbeddedCloud, folder: Path) -> None:
    place = "/mnt/efs/data/e2e/a b.bin"
    damage = f"touch -r '{place}' ~/stamp && printf X | dd of='{place}' conv=notrunc && touch -r ~/stamp '{place}'"
    staged.laptop("fab", "run", "--master", *demo.settings(2), "--", "sh", "-c", damage)
    told, said = stage(staged, folder)
    assert "damaged on the shared file system, staged again: 'a b.bin'" in said
    assert told["uploaded_bytes"] == SIZES["a b.bin"]


def test_full_disk_of_worker_is_reported_before_and_during_a_run(cluster: EmbeddedCloud, tmp_path: Path) -> None:
    if why := cluster.described["unlimited_volumes"]:
        pytest.skip(why)
    workers = [worker["InstanceId"] for worker in cluster.instances("worker")]
    (tmp_path / "fill.py").write_text(FILL)
    # A node with a full disk cannot store the master's key, so the nodes must have admitted the master before.
    eventually(lambda: cluster.fab("run", "--", "true", check=False).returncode == 0)
    names = {worker: cluster.on(worker, "cat", NAME).stdout for worker in workers}
    program = ("--nodes", "1", "--payload", str(tmp_path), "--entry", "fill.py", "--launcher", "plain", "--yes")
    try:
        for worker in workers:
            cluster.on(worker, "sh", "-c", f"fallocate -l 1T {BALLAST}; test -e {BALLAST}")
        done = cluster.fab("train", *program, check=False)
        assert done.returncode == 1
        assert re.search(rf"deeplearning-worker\d: .*({LEFT}|{TOO_LITTLE})", done.stdout + done.stderr)
        for worker in workers:
            # It may fail, because files with other nodes may have to change.
            cluster.on(worker, "/opt/deepcdk/bin/registry", "refresh", check=False)
            assert cluster.on(worker, "cat", NAME).stdout == names[worker], "a full disk takes no name away"
    finally:
        for worker in workers:
            cluster.on(worker, "rm", "-f", BALLAST)
    done = cluster.fab("train", *program, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stdout
    full = r"the disk with /home/deepcdk-rank\S* on deeplearning-worker\d is full \(0\.\d MiB free\)"
    assert re.search(f"{full}; do: free space on it", done.stderr)
    assert "(`fab clean` removes unused files)" in done.stderr
