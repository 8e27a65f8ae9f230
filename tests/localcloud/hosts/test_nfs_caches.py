"""What a host sees of the shared file system through the caches of an NFS client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud.hosts import nfs_caches
from tests.localcloud.testbed import MASTER, OTHER, WORKER, SmallCloud, running, snapshot
from tests.waiting import eventually

MOUNT = "mkdir -p /mnt/efs && mount -t nfs4 -o nfsvers=4.1 fs-0123abcd.efs.us-east-1.amazonaws.com:/ /mnt/efs"


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCloud]:
    with running(tmp_path_factory.mktemp("caches"), nfs_caches=True) as testbed:
        testbed.show(snapshot(MASTER, WORKER, OTHER))
        for host in (MASTER, WORKER):
            assert testbed.execute(host, f"{MOUNT} && mkdir -pm 777 /mnt/efs/open").stderr == ""
        yield testbed


def test_a_machine_without_bindfs_or_fuse_is_told_what_to_install(tmp_path: Path) -> None:
    assert nfs_caches.missing("/usr/bin/bindfs", Path("/dev/null")) == []
    no_command, no_device = nfs_caches.missing(None, tmp_path / "fuse")
    assert "apt-get install bindfs" in no_command
    assert "modprobe fuse" in no_device


@pytest.mark.root
def test_a_new_file_stays_unseen_by_the_host_that_had_looked_for_it(testbed: SmallCloud) -> None:
    began = time.monotonic()
    assert testbed.execute(WORKER, "cat /mnt/efs/open/late").returncode == 1
    testbed.execute(MASTER, "echo here > /mnt/efs/open/late")
    look = "ls /mnt/efs/open; cat /mnt/efs/open/late"
    seen = testbed.execute(WORKER, look)
    if time.monotonic() - began < nfs_caches.NAMES_S:  # else the machine was too slow to tell
        assert seen.stdout == "late\n"
        assert "No such file" in seen.stderr
    eventually(lambda: testbed.execute(WORKER, look).stdout == "late\nhere\n", timeout_s=4 * nfs_caches.NAMES_S)


@pytest.mark.root
def test_new_content_is_seen_by_who_opens_the_file_also_where_its_old_size_is_cached(testbed: SmallCloud) -> None:
    testbed.execute(MASTER, "echo old > /mnt/efs/open/state")
    assert testbed.execute(WORKER, "stat -c %s /mnt/efs/open/state").stdout == "4\n"
    testbed.execute(MASTER, "echo new and longer > /mnt/efs/open/new && mv /mnt/efs/open/new /mnt/efs/open/state")
    assert testbed.execute(WORKER, "cat /mnt/efs/open/state").stdout == "new and longer\n"


@pytest.mark.root
def test_a_lock_holds_on_all_hosts(testbed: SmallCloud) -> None:
    hold = "exec 9>>/mnt/efs/open/lock; flock 9; (sleep 60) </dev/null >/dev/null 2>&1 & echo $!"
    holder = testbed.execute(MASTER, hold).stdout.strip()
    assert testbed.execute(WORKER, "flock -n /mnt/efs/open/lock true").returncode == 1
    testbed.execute(MASTER, f"kill {holder}")
    eventually(lambda: testbed.execute(WORKER, "flock -n /mnt/efs/open/lock true").returncode == 0)


@pytest.mark.root
def test_a_new_file_belongs_to_its_writer(testbed: SmallCloud) -> None:
    testbed.execute(WORKER, "touch /mnt/efs/open/mine", user="ec2-user")
    assert testbed.execute(MASTER, "stat -c %u /mnt/efs/open/mine").stdout == "1000\n"


@pytest.mark.root
def test_a_host_that_has_not_mounted_it_sees_nothing(testbed: SmallCloud) -> None:
    assert testbed.execute(OTHER, "ls -A /mnt").stdout == ""


@pytest.mark.root
def test_who_is_told_to_end_at_shutdown_can_still_write(testbed: SmallCloud) -> None:
    trap = "trap 'sleep 0.1; echo ended > /mnt/efs/open/last' TERM; sleep 60 & wait"
    testbed.execute(WORKER, f"setsid bash -c {trap!r} </dev/null >/dev/null 2>&1 & sleep 0.5")
    testbed.show(snapshot(MASTER, OTHER))
    assert (testbed.layout.efs / "fs-0123abcd/open/last").read_text() == "ended\n"


def passing_on(directory: Path) -> set[str]:
    """Return the pids of the processes that show a directory's file systems to hosts."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0] == b"bindfs" and str(directory).encode() in b" ".join(words):
            found.add(process.name)
    return found


@pytest.mark.root
def test_nothing_is_left_of_the_mounts(tmp_path: Path) -> None:
    before = Path("/proc/self/mounts").read_text()
    with running(tmp_path, nfs_caches=True) as own:
        own.show(snapshot(WORKER))
        assert len(passing_on(tmp_path)) == 1
    assert passing_on(tmp_path) == set()
    assert Path("/proc/self/mounts").read_text() == before


@pytest.mark.root
def test_a_mount_ends_with_a_host_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, nfs_caches=True) as own:
        own.show(snapshot(WORKER))
        process = own.reconciler.hosts[WORKER.id].process
        assert process is not None
        process.kill()
        eventually(lambda: not passing_on(tmp_path))


@pytest.mark.root
def test_a_host_whose_mount_fails_is_given_up_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nfs_caches, "MOUNT_OPTIONS", "nonsense")
    with running(tmp_path, nfs_caches=True) as own:
        own.cloud.now = snapshot(WORKER)
        own.reconciler.reconcile()
        eventually(lambda: own.reconciler.dead)
        own.reconciler.reconcile()
        assert "nonsense" in own.cloud.failed[WORKER.id]
        assert passing_on(tmp_path) == set()
