"""Whether a run's process is alive: its lock disappears with the process, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.files.file_lock import AlreadyLockedError
from agent.runs import liveness
from tests.factories import abandon
from tests.waiting import eventually

HOLDER = (
    "import sys; from agent.runs import liveness; liveness.hold('one'); print('held', flush=True); sys.stdin.read()"
)
SUPERVISOR = """
import subprocess, sys
from agent.runs import liveness
liveness.inherit('one', int(sys.argv[1]))
child = subprocess.Popen(['sleep', '60'], close_fds=False)
print(child.pid, flush=True)
sys.stdin.read()
"""
PROJECT = Path(__file__).resolve().parents[3]


def start(script: str, *words: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *words]
    return subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=pass_fds
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_lock_is_exclusive_until_its_process_exits(number: signal.Signals) -> None:
    assert not liveness.is_held("one")
    with start(HOLDER) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert liveness.is_held("one")
        with pytest.raises(AlreadyLockedError, match="another process already supervises run one"):
            liveness.hold("one")
        holder.send_signal(number)
        holder.wait()
        assert not liveness.is_held("one")
    liveness.hold("one")
    assert liveness.is_held("one")
    liveness.forget("one")
    assert not liveness.is_held("one")


def test_supervisor_inherits_lock_but_its_children_do_not() -> None:
    liveness.hold("one")
    descriptor = liveness.descriptor_of("one")
    assert liveness.supervisor_pid("one") is None, "the starter is no supervisor"
    with start(SUPERVISOR, f"{descriptor}", pass_fds=(descriptor,)) as supervisor:
        assert supervisor.stdout is not None
        child = int(supervisor.stdout.readline())
        liveness.let_go("one")
        assert (liveness.is_held("one"), liveness.supervisor_pid("one")) == (True, supervisor.pid)
        supervisor.kill()
        supervisor.wait()
        try:
            # The child has the lock for some milliseconds: the kernel resumes its parent before it closes descriptors.
            eventually(lambda: not liveness.is_held("one"))
            assert liveness.supervisor_pid("one") is None
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


def test_cause_of_exit_is_known_from_remaining_lock() -> None:
    assert liveness.end_cause("one") == "the master was replaced", "this disk has no lock of the run"
    abandon("one")
    assert liveness.end_cause("one") == ""
    (Path.home() / liveness.LOCKS / "one").write_text("another boot\n7\n")
    assert liveness.end_cause("one") == "the master was rebooted"


def test_checking_a_lock_does_not_prevent_taking_it() -> None:
    script = "from agent.runs import liveness\nwhile True: liveness.is_held('one')"
    abandon("one")
    with start(script) as looking:
        try:
            for _ in range(20):
                liveness.hold("one")
                liveness.let_go("one")
        finally:
            looking.kill()
