"""The program on a node: it runs what it reads, and truncated text is not executed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agent.remote.fanout_stub import FLAGS, MODULE_SCRIPT, READY, SCRIPT, message


def run(sent: bytes) -> subprocess.CompletedProcess[bytes]:
    ours, theirs = os.pipe()
    os.write(theirs, sent)
    try:
        return subprocess.run([sys.executable, *FLAGS, "-c", SCRIPT], stdin=ours, capture_output=True, timeout=60)
    finally:
        os.close(theirs)
        os.close(ours)


def test_only_given_path_is_searched() -> None:
    assert run(message(["true"], {"PATH": "/nowhere"})).returncode == 127
    assert run(message(["true"], {"PATH": "/bin:/usr/bin"})).returncode == 0


MODULE = """
import time
def main(argv):
    print(argv, flush=True)
    time.sleep(30 if "wait" in argv else 0)
    return 7
"""


def start(tree: Path, *words: str) -> subprocess.Popen[bytes]:
    (tree / "module_of_test.py").write_text(MODULE)
    command = [sys.executable, *FLAGS, "-c", MODULE_SCRIPT]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(message([str(tree), "module_of_test", *words], {}))
    process.stdin.flush()
    return process


def test_module_of_tree_is_called_with_its_arguments(tmp_path: Path) -> None:
    process = start(tmp_path, "a b", "ü")
    assert process.stdout and process.stdout.read() == READY + repr(["a b", "ü"]).encode() + b"\n"
    assert process.wait(timeout=60) == 7


def test_module_is_stopped_if_reader_exits(tmp_path: Path) -> None:
    process = start(tmp_path, "wait")
    assert process.stdin and process.stdout
    while b"wait" not in process.stdout.readline():
        pass
    process.stdin.close()
    assert process.wait(timeout=60) == -15


def test_truncated_message_runs_nothing() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, message(["touch", "/no/such"], {})[:-2])
    os.close(theirs)
    done = subprocess.run([sys.executable, *FLAGS, "-c", SCRIPT], stdin=ours, capture_output=True, timeout=60)
    os.close(ours)
    assert (done.returncode, done.stdout) == (1, b"")
