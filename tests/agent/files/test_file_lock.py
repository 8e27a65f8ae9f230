"""The lock between processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.files.file_lock import AlreadyLockedError, file_lock

HOLDER = """
import sys
from pathlib import Path
from agent.files.file_lock import AlreadyLockedError, file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """Start a process that holds the lock until its input ends; return it once it holds the lock."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_process_waits_and_reports_it_once(tmp_path: Path) -> None:
    told: list[str] = []
    with holder(tmp_path / "lock") as process:
        assert process.stdin is not None
        let_go = process.stdin.close

        def on_wait() -> None:
            told.append("waiting")
            let_go()

        with file_lock(tmp_path / "lock", on_wait=on_wait):
            assert process.wait(60) == 0
    assert told == ["waiting"]


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with holder(tmp_path / "lock") as process:
        process.kill()
        process.wait()
    told: list[str] = []
    with file_lock(tmp_path / "lock", on_wait=lambda: told.append("waiting")):
        assert told == []


def test_process_without_waiting_gets_error_about_the_lock(tmp_path: Path) -> None:
    second = file_lock(tmp_path / "lock", wait=False)
    with file_lock(tmp_path / "lock"), pytest.raises(AlreadyLockedError, match="lock"), second:
        pytest.fail("two have it")
    with file_lock(tmp_path / "lock", wait=False):
        pass
