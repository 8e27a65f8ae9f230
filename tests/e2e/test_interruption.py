"""Ctrl-C in connected tasks: exit status 130, one line of output, and nothing left on the master."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import PATIENCE_S, eventually

SSH: Final = ":0016"
ESTABLISHED: Final = "01"
CONNECTING_S: Final = 0.1
AT_ONCE: Final = 2
"""Number of tasks that are interrupted concurrently: each uses a second of one core before it connects."""
TRIES: Final = 5
SSH_ENDED: Final = 255
PROGRESS_LINES: Final = 4
"""Maximum number of progress lines before an interruption: `stage-data` reads, connects, sends, checks."""
# Without --yes: a task that is not interrupted in time asks a question that gets no answer.
TASKS: Final[tuple[tuple[str, ...], ...]] = (
    ("attach",),
    ("down", "--force"),
    ("logs", "--follow"),
    ("notebook", "--no-browser"),
    ("push",),
    ("replace", "worker2"),
    ("scale", "1"),
    ("ssh",),
    ("stage-data", __file__),
    ("status", "--load"),
    ("train", "--yes"),
    ("run", "--", "sleep", "4243"),
)


class Connected:
    """Detect whether a process has a connection to an SSH server.

    The kernel needs 5 ms of CPU time to list the connections of a namespace. Several concurrent watchers would notice a
    connection only after its task has ended. Therefore connections are listed only shortly after the process opens
    another socket.
    """

    def __init__(self) -> None:
        self._sockets: set[str] = set()
        self._looks_until = 0.0

    def __call__(self, pid: int) -> bool:
        """Return whether the process is connected now."""
        try:
            links = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
            sockets = {link for link in links if link.startswith("socket:")}
            if not sockets <= self._sockets:
                self._looks_until = time.monotonic() + CONNECTING_S
            self._sockets = sockets
            if time.monotonic() > self._looks_until:
                return False
            rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        except OSError:  # The process has exited or has closed a socket in the meantime.
            return False
        return any(f"socket:[{row[9]}]" in sockets for row in rows if row[2].endswith(SSH) and row[3] == ESTABLISHED)


def interrupt(cloud: EmbeddedCloud, words: tuple[str, ...], when: Callable[[int], bool]) -> tuple[int, str]:
    """Start a task as a terminal does and interrupt it as a terminal does; return its status and output.

    Some interruptions prove nothing, and the task is started again. Its process may exit before the signal. It may also
    be interrupted after its work, while Python shuts down: without a handler, the process then exits with 0 or by the
    signal. `fab ssh` may already have become ssh, which exits with 255.
    """
    at = words.index("--") if "--" in words else len(words)
    task = ("fab", *words[:at], *demo.settings(2), *words[at:])
    for _ in range(TRIES):
        process = subprocess.Popen(
            demo.localcloud("run", "--name", cloud.name, "--", *task),
            cwd=demo.ROOT, env=demo.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            while process.poll() is None and not when(process.pid):
                time.sleep(0.002)
            if in_time := process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            output, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        if in_time and process.returncode not in (0, SSH_ENDED, -signal.SIGINT):
            break
    return process.returncode, output


@pytest.fixture(scope="module")
def ended(cluster: EmbeddedCloud) -> dict[tuple[str, ...], tuple[int, str]]:
    """Interrupt each task as soon as it is connected; return the status and output of each."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(TASKS, pool.map(lambda words: interrupt(cluster, words, Connected()), TASKS), strict=True))


@pytest.mark.parametrize("words", TASKS, ids=lambda words: words[0])
def test_ctrl_c_stops_connected_task_with_one_line(
    ended: dict[tuple[str, ...], tuple[int, str]], words: tuple[str, ...]
) -> None:
    status, output = ended[words]
    assert (status, output.splitlines()[-1:]) == (130, ["interrupted"]), output
    assert "Traceback" not in output
    said_of_the_end = 2
    assert len([line for line in output.splitlines() if line]) <= PROGRESS_LINES + said_of_the_end, output


def test_interrupted_task_leaves_nothing_on_master(
    cluster: EmbeddedCloud, ended: dict[tuple[str, ...], tuple[int, str]]
) -> None:
    (master,) = cluster.instances("master")
    ours = r"(payload|agent)\.|sleep 4243|tensorboard"
    look = (master["InstanceId"], "pgrep", "--full", "--list-full", ours)

    def left() -> str:
        return cluster.on(*look, check=False).stdout

    eventually(lambda: not left(), what=left)
    assert len(cluster.instances("worker")) == 2


def test_ctrl_c_on_a_plan_leaves_no_change_set(cluster: EmbeddedCloud) -> None:
    def compares(pid: int) -> bool:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        return children.exists() and bool(children.read_text().split())

    status, output = interrupt(cluster, ("up", "--plan", "--set", "worker_volume_gib=120"), compares)
    assert (status, output.splitlines()[-1:], "Traceback" in output) == (130, ["interrupted"], False), output
    assert cluster.aws("cloudformation", "list-change-sets", "--stack-name", "deepcdk")["Summaries"] == []
