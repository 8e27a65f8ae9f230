"""Facts about a process that lives on by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from agent.remote.processes import parse_environment, parse_parent
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[3]
STARTER = """\
import os, sys
from agent.launch.detached import start_detached
started = start_detached(sys.argv[2:], directory=sys.argv[1], environ={"ONLY": "this"})
try:
    os.waitpid(-1, os.WNOHANG)
    children = "children"
except ChildProcessError:
    children = "no child"
print(started, children, os.getpid(), flush=True)
sys.stdin.read()
"""


def start(*words: str, directory: Path) -> subprocess.Popen[str]:
    """Start a process that starts another one detached, tells of it, and waits for the end of its input."""
    command = [sys.executable, "-c", STARTER, str(directory), *words]
    return subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_it_is_no_child_of_its_starter_has_a_session_and_the_given_variables_and_holds_no_pipe(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with start("/bin/sh", "-c", "echo $$ > pid; exec /bin/sleep 600", directory=tmp_path) as starter:
        assert starter.stdout is not None and starter.stdin is not None
        told = starter.stdout.readline().split()
        pid = int(eventually(lambda: pid_file.read_text() if pid_file.exists() else ""))
        try:
            assert told[:3] == ["True", "no", "child"]
            assert parse_parent(Path(f"/proc/{pid}/stat").read_text()) != int(told[3])
            assert os.getsid(pid) not in (os.getsid(0), os.getsid(int(told[3])))
            assert parse_environment(Path(f"/proc/{pid}/environ").read_bytes())["ONLY"] == "this"
            assert "HOME" not in parse_environment(Path(f"/proc/{pid}/environ").read_bytes())
            starter.stdin.close()
            assert starter.stdout.read() == "", "the end of the starter's output is seen while the other lives"
            assert starter.wait(timeout=60) == 0
            assert Path(f"/proc/{pid}").exists()
        finally:
            os.kill(pid, signal.SIGKILL)


def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    with start("/nowhere/program", directory=tmp_path) as starter:
        output, _ = starter.communicate("", timeout=60)
    assert output.startswith("False no child")
