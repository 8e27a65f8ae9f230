"""A node that EC2 or its group reclaims: what its ranks and the cluster are told."""

from __future__ import annotations

import datetime
import re
import shutil
import signal
import subprocess

import pytest

from agent.spec.launchers import RANK_PARENT
from agent.spec.nodes import RANK_UID
from tests.stacks.boot.nodelab import Lab, Node, booted
from tests.waiting import eventually

PARENT = ("/python", *RANK_PARENT, "gloo", "/python", "-m", "agent.launch.rank", "/run")


def process(node: Node, pid: int, *words: str, user: int = RANK_UID) -> None:
    folder = node.root / "proc" / str(pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (folder / "status").write_text(f"Name:\tpython\nUid:\t{user}\t{user}\t{user}\t{user}\n")


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("spot", '{"action": "terminate", "time": "2026-01-02T03:04:05Z"}', "EC2 interrupts this spot instance"),
        ("target", "Terminated", "its group terminates this instance"),
    ],
)
def test_notice_stops_each_rank_once_and_is_reported_to_cluster(lab: Lab, file: str, text: str, reason: str) -> None:
    worker = booted(lab.node("worker", 1, heeds_notices=True))
    assert worker.notice() == (1, "")
    told, secret = lab.shared / ".cluster/leaving" / worker.instance_id, lab.folder / "secret"
    told.parent.mkdir()
    told.symlink_to(secret)  # as root on another node can
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        process(worker, 1, "init", user=0)
        process(worker, sleeper.pid, *PARENT)
        process(worker, 99999998, "python", "train.py")  # its rank; the parent forwards the signal
        process(worker, 99999997, "torchrun", *PARENT)
        process(worker, 99999996, *PARENT, user=1000)
        (worker.root / file).write_text(text)
        status, said = worker.notice()
        assert status == 1, "a rank is still here"
        assert reason in said
        assert f"asking rank process {sleeper.pid} to stop" in said
        assert "9999999" not in said
        assert sleeper.wait(60) == -signal.SIGTERM
        assert worker.notice() == (1, ""), "it is asked once only"
    finally:
        sleeper.kill()
        sleeper.wait()
    shutil.rmtree(worker.root / "proc" / str(sleeper.pid))
    assert worker.notice() == (0, "")
    assert reason in told.read_text()
    assert not secret.exists(), "it is written beside the link, not through it"


@pytest.mark.parametrize("then", ["a minute is left", "its group ends it"])
def test_ranks_on_spot_continue_until_last_minute_or_termination_by_group(lab: Lab, then: str) -> None:
    worker = booted(lab.node("worker", 1, heeds_notices=True))

    def interrupted_in(seconds: float) -> None:
        at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        (worker.root / "spot").write_text(f'{{"action":"terminate","time":"{at:%Y-%m-%dT%H:%M:%SZ}"}}')

    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        process(worker, sleeper.pid, *PARENT)
        interrupted_in(120)
        status, said = worker.notice()
        assert status == 1
        (seconds,) = re.findall(r"its ranks continue for (\d+) s", said)
        assert 30 <= int(seconds) <= 60
        assert (lab.shared / ".cluster/leaving" / worker.instance_id).exists(), "the cluster is told at once"
        (worker.root / "spot").unlink()  # the metadata service fails to answer once
        assert worker.notice() == (1, "") and sleeper.poll() is None
        if then == "a minute is left":
            interrupted_in(59)
        else:
            (worker.root / "target").write_text("Terminated")
        assert f"asking rank process {sleeper.pid} to stop" in worker.notice()[1]
        assert sleeper.wait(60) == -signal.SIGTERM
    finally:
        sleeper.kill()
        sleeper.wait()


def test_node_with_notice_is_unregistered_when_idle(lab: Lab) -> None:
    worker = booted(lab.node("worker", 1, heeds_notices=True))
    entry = lab.shared / ".cluster/nodes/deeplearning-worker1"
    assert entry.exists()
    (worker.root / "target").write_text("Terminated")
    watcher = worker.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        eventually(lambda: not entry.exists())
    finally:
        watcher.terminate()
        watcher.wait(60)
