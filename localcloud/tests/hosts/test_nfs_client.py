"""The shared file system through the caches of an NFS client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud.hosts import nfs_client
from testbed import MASTER, OTHER, WORKER, SmallCloud, running, snapshot
from waiting import eventually

MOUNT = "mkdir -p /mnt/efs && mount -t nfs4 -o nfsvers=4.1 fs-0123abcd.efs.us-east-1.amazonaws.com:/ /mnt/efs"


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCloud]:
    with running(tmp_path_factory.mktemp("caches"), nfs=True) as testbed:
        testbed.show(snapshot(MASTER, WORKER, OTHER))
        for host in (MASTER, WORKER):
            assert testbed.execute(host, f"{MOUNT} && mkdir -pm 777 /mnt/efs/open").stderr == ""
        yield testbed


@pytest.mark.root
def test_new_file_is_invisible_to_host_that_looked_for_it_before(testbed: SmallCloud) -> None:
    began = time.monotonic()
    assert testbed.execute(WORKER, "cat /mnt/efs/open/late").returncode == 1
    testbed.execute(MASTER, "echo here > /mnt/efs/open/late")
    look = "ls /mnt/efs/open; cat /mnt/efs/open/late"
    seen = testbed.execute(WORKER, look)
    if time.monotonic() - began < nfs_client.NAMES_S:  # otherwise the machine was too slow for a result
        assert seen.stdout == "late\n"
        assert "No such file" in seen.stderr
    eventually(lambda: testbed.execute(WORKER, look).stdout == "late\nhere\n", timeout_s=4 * nfs_client.NAMES_S)


@pytest.mark.root
def test_new_content_is_visible_after_opening_the_file_even_if_its_old_size_is_cached(testbed: SmallCloud) -> None:
    testbed.execute(MASTER, "echo old > /mnt/efs/open/state")
    assert testbed.execute(WORKER, "stat -c %s /mnt/efs/open/state").stdout == "4\n"
    testbed.execute(MASTER, "echo new and longer > /mnt/efs/open/new && mv /mnt/efs/open/new /mnt/efs/open/state")
    assert testbed.execute(WORKER, "cat /mnt/efs/open/state").stdout == "new and longer\n"


@pytest.mark.root
def test_lock_holds_on_all_hosts(testbed: SmallCloud) -> None:
    hold = "exec 9>>/mnt/efs/open/lock; flock 9; (sleep 60) </dev/null >/dev/null 2>&1 & echo $!"
    holder = testbed.execute(MASTER, hold).stdout.strip()
    assert testbed.execute(WORKER, "flock -n /mnt/efs/open/lock true").returncode == 1
    testbed.execute(MASTER, f"kill {holder}")
    eventually(lambda: testbed.execute(WORKER, "flock -n /mnt/efs/open/lock true").returncode == 0)


@pytest.mark.root
def test_only_open_on_nfs_takes_a_round_trip(
    testbed: SmallCloud,
) -> None:
    opens = "import time; at = time.monotonic(); [open('{}/open', 'w').close() for _ in range(100)]; " \
        "print(time.monotonic() - at)"  # fmt: skip
    shared, local = (
        float(testbed.execute(MASTER, f'python3 -c "{opens.format(path)}"').stdout)
        for path in ("/mnt/efs/open", "/var/tmp")
    )
    assert shared >= 100 * nfs_client.OPEN_S
    assert local < shared


@pytest.mark.root
def test_freed_lock_is_acquired_at_next_retry(testbed: SmallCloud) -> None:
    hold = "exec 9>>/mnt/efs/open/polled; flock 9; (sleep 1.5) </dev/null >/dev/null 2>&1 &"
    wait = "import fcntl, time; at, file = time.monotonic(), open('/mnt/efs/open/polled', 'a'); " \
        "fcntl.flock(file, fcntl.LOCK_EX); print(time.monotonic() - at)"  # fmt: skip
    testbed.execute(MASTER, hold)
    waited_s = float(testbed.execute(WORKER, f'python3 -c "{wait}"').stdout)
    assert waited_s >= 1  # the second attempt; the third one follows after 3 s, if the lock was held twice


@pytest.mark.root
def test_exclusive_lock_on_nfs_requires_a_file_open_for_writing(
    testbed: SmallCloud,
) -> None:
    lock = "touch {0}/read; exec 9<{0}/read; flock -n 9 && echo locked"
    refused = testbed.execute(WORKER, lock.format("/mnt/efs/open"))
    assert refused.stdout == ""
    assert "Bad file descriptor" in refused.stderr
    assert testbed.execute(WORKER, lock.format("/var/tmp")).stdout == "locked\n"


@pytest.mark.root
def test_new_file_belongs_to_its_writer(testbed: SmallCloud) -> None:
    testbed.execute(WORKER, "touch /mnt/efs/open/mine", user="ec2-user")
    assert testbed.execute(MASTER, "stat -c %u /mnt/efs/open/mine").stdout == "1000\n"


@pytest.mark.root
def test_host_without_mount_sees_nothing(testbed: SmallCloud) -> None:
    assert testbed.execute(OTHER, "ls -A /mnt").stdout == ""


@pytest.mark.root
def test_process_terminated_at_shutdown_can_still_write(testbed: SmallCloud) -> None:
    trap = "trap 'sleep 0.1; echo ended > /mnt/efs/open/last' TERM; sleep 60 & wait"
    testbed.execute(WORKER, f"setsid bash -c {trap!r} </dev/null >/dev/null 2>&1 & sleep 0.5")
    testbed.show(snapshot(MASTER, OTHER))
    assert (testbed.layout.efs / "fs-0123abcd/open/last").read_text() == "ended\n"


def passing_on(directory: Path) -> set[str]:
    """Return the pids of the processes that serve a directory's file systems to hosts."""
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
def test_mount_ends_with_killed_host(tmp_path: Path) -> None:
    with running(tmp_path, nfs=True) as own:
        own.show(snapshot(WORKER))
        process = own.reconciler.hosts[WORKER.id].process
        assert process is not None
        process.kill()
        eventually(lambda: not passing_on(tmp_path))


@pytest.mark.root
def test_host_with_a_failed_mount_is_given_up_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nfs_client, "MOUNT_OPTIONS", "nonsense")
    with running(tmp_path, nfs=True) as own:
        own.cloud.now = snapshot(WORKER)
        own.reconciler.reconcile()
        eventually(lambda: own.reconciler.has_dead_host)
        own.reconciler.reconcile()
        assert "nonsense" in own.cloud.failed[WORKER.id]
        assert passing_on(tmp_path) == set()
