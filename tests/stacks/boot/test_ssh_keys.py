"""SSH keys of nodes: which node has which key, and which keys each node accepts and knows."""

from __future__ import annotations

import dataclasses
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nfs import nfs_client
from tests.stacks.boot.nodelab import Lab, booted, key_of
from tests.waiting import eventually

LIMITS = (
    "ulimit -u $(($(</proc/sys/kernel/pid_max) / 3)) 2>/dev/null; echo 500 >/proc/self/oom_score_adj; "
    'exec setpriv --nnp bash -c "$SSH_ORIGINAL_COMMAND"'
)
"""The command that a worker runs when the master logs in as the ranks' user."""


def test_private_key_of_cluster_is_only_on_master(lab: Lab) -> None:
    master, worker = booted(lab.node("master", 1)), booted(lab.node("worker", 2))
    private = "home/ec2-user/.ssh/id_ed25519"
    assert (master.root / private).stat().st_mode & 0o777 == 0o600
    assert not (worker.root / private).exists()
    shared = [path.read_text() for path in lab.shared.rglob("*") if path.is_file()]
    assert not any(master.text(private) in text for text in shared)


def test_workers_accept_only_key_of_current_master(lab: Lab) -> None:
    worker = lab.node("worker", 2)
    (worker.root / "home/ec2-user/.ssh").mkdir()
    keys = worker.root / "home/ec2-user/.ssh/authorized_keys"
    keys.write_text("ssh-ed25519 USER me@laptop\n")
    first = booted(lab.node("master", 1))
    booted(worker)
    restricted = f'restrict,pty,port-forwarding,from="{first.ip}"'
    assert f"{restricted} {first.environment()['LAB_KEY']} deepcdk-master\n" in keys.read_text()
    assert keys.stat().st_mode & 0o777 == 0o600

    lab.silence("deeplearning-master")
    second = booted(lab.node("master", 3))
    assert worker.refresh()[0] == 0
    assert second.environment()["LAB_KEY"] in keys.read_text()
    assert first.environment()["LAB_KEY"] not in keys.read_text()
    assert "ssh-ed25519 USER me@laptop\n" in keys.read_text()


def test_master_logs_in_as_user_of_ranks_for_commands_only(lab: Lab) -> None:
    nodes = [booted(lab.node("master", 1)), booted(lab.node("worker", 2))]
    forced = LIMITS.replace('"', '\\"')
    on_worker = f'restrict,command="{forced}",from="{nodes[0].ip}"'
    for node, options in zip(nodes, ("restrict", on_worker), strict=True):
        keys = node.root / "home/deepcdk-rank/.ssh/authorized_keys"
        lines = [line for line in keys.read_text().splitlines() if not line.startswith("#")]
        assert lines == [f"{options} {nodes[0].environment()['LAB_KEY']} deepcdk-master"]
        assert keys.stat().st_mode & 0o777 == 0o644, "SSH reads it as that user"
    lab.silence("deeplearning-master")
    second = booted(lab.node("master", 3))
    assert nodes[1].refresh()[0] == 0
    assert keys.read_text().count("restrict,") == 1
    assert second.environment()["LAB_KEY"] in keys.read_text()


FORK_BOMB = """
import os, time
made = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
    except OSError as error:
        print(made < 400, error.errno, flush=True)
        break
"""


@pytest.mark.root
def test_commands_of_master_as_user_of_ranks_are_limited() -> None:
    """A fork bomb in a process namespace with 600 ids leaves two thirds of them to the other users."""
    shown = "grep NoNewPrivs /proc/self/status; cat /proc/self/oom_score_adj; ulimit -Hu"
    rank = f"setpriv --reuid 60999 --regid 60999 --clear-groups env SSH_ORIGINAL_COMMAND=\"$1\" bash -c '{LIMITS}'"
    body = "\n".join(
        [
            "echo 600 >/proc/sys/kernel/pid_max",
            f"set -- {shlex.quote(shown)}",
            rank,
            f"set -- {shlex.quote(shlex.join([sys.executable, '-c', FORK_BOMB]))}",
            rank,
            "for each in {1..50}; do sleep 9 & done",
            "jobs | wc -l",
        ]
    )
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", body]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split("\n") == ["NoNewPrivs:\t1", "500", "200", "True 11", "50", ""], done.stderr


def test_master_logs_in_as_root_on_workers_for_one_command_only(lab: Lab) -> None:
    master, worker = booted(lab.node("master", 1)), booted(lab.node("worker", 2))
    lines = [line for line in worker.text("root/.ssh/authorized_keys").splitlines() if not line.startswith("#")]
    only = f'restrict,command="/opt/deepcdk/bin/leftovers",from="{master.ip}"'
    assert lines == [f"{only} {master.environment()['LAB_KEY']} deepcdk-master"]
    assert (worker.root / "root/.ssh").stat().st_mode & 0o777 == 0o700
    assert not (master.root / "root/.ssh").exists()


def test_master_knows_host_key_of_every_node_by_name_and_address(lab: Lab) -> None:
    worker = booted(lab.node("worker", 2))
    master = booted(lab.node("master", 1))
    known = master.text("etc/ssh/ssh_known_hosts")
    assert f"deeplearning-worker1,{worker.ip} {key_of('HOST2')}\n" in known
    assert f"deeplearning-master,{master.ip} {key_of('HOST1')}\n" in known


def test_host_keys_are_printed_to_console_between_cloud_init_markers(lab: Lab) -> None:
    node = lab.node("worker", 5)
    (node.root / "dev/console").write_text("booting\n")
    booted(node)
    assert node.text("dev/console") == (
        "booting\n"
        "-----BEGIN SSH HOST KEY KEYS-----\n"
        f"{key_of('HOST5')} root@{node.instance_id}\n"
        "-----END SSH HOST KEY KEYS-----\n"
    )


def test_host_keys_are_printed_at_each_boot(lab: Lab) -> None:
    node = lab.node("worker", 5)
    (node.root / "dev/console").touch()
    booted(node)
    (node.root / "dev/console").write_text("")
    watcher = node.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        eventually(lambda: key_of("HOST5") in node.text("dev/console"))
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)


def test_host_keys_are_printed_repeatedly(lab: Lab) -> None:
    node = lab.node("worker", 5)
    (node.root / "dev/console").touch()
    booted(node)
    watcher = node.registry("watch", DEEPCDK_PAUSE_S="0.05", DEEPCDK_KEYS_S="1")
    try:
        eventually(lambda: node.text("dev/console").count(key_of("HOST5")) >= 4)  # two by the boot
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)


@pytest.mark.root
def test_worker_accepts_a_late_master_key_despite_nfs_caches(lab: Lab, tmp_path: Path) -> None:
    """An NFS client's caches continue to report a file as missing after a failed lookup."""
    with nfs_client(lab.shared, tmp_path / "client") as shared:
        worker = booted(dataclasses.replace(lab.node("worker", 2), shared=shared))
        watcher = worker.registry("watch", DEEPCDK_PAUSE_S="0.05")
        beats = lab.shared / ".cluster/nodes/deeplearning-worker1"
        try:
            for _ in range(3):
                seen = beats.stat().st_mtime_ns
                eventually(lambda seen=seen: beats.stat().st_mtime_ns > seen)  # type: ignore[misc]
        finally:
            watcher.send_signal(signal.SIGKILL)
            watcher.wait(timeout=60)
        keys = worker.root / "home/ec2-user/.ssh/authorized_keys"
        assert not keys.exists()
        master = booted(lab.node("master", 1))
        assert worker.refresh()[0] == 0
        assert master.environment()["LAB_KEY"] in keys.read_text()
        assert f"{master.ip} deeplearning-master\n" in worker.text("etc/hosts")
