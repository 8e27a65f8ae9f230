"""Facts about the parent of a rank: its lines, its last one, and signals for the rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.launch.marked_rank import parse_end

PROJECT = Path(__file__).parents[3]


def start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "agent.launch.marked_rank", sys.executable, "-c", code],
        cwd=PROJECT,
        env={**os.environ, "RANK": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize(
    ("end", "status"), [("pass", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_lines_are_marked_and_the_end_is_reported(end: str, status: int) -> None:
    with start(f"print('told', flush=True)\n{end}") as rank:
        output, _ = rank.communicate(timeout=60)
    lines = output.splitlines(keepends=True)
    assert (lines[0], parse_end(lines[-1]), rank.returncode) == (b"[2]<stdout>:told\n", (2, status), status)


def test_a_signal_is_the_ranks() -> None:
    code = (
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(7)))\n"
        "print('ready', flush=True)\nsignal.pause()"
    )
    with start(code) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == b"[2]<stdout>:ready\n"
        rank.send_signal(signal.SIGTERM)
        output, _ = rank.communicate(timeout=60)
    assert output.splitlines()[0] == b"[2]<stdout>:saved"
    assert rank.returncode == 7


def test_what_a_rank_writes_is_no_report() -> None:
    assert parse_end(b"[2]<stdout>:[launcher] rank 2 ended: 0\n") is None
    assert parse_end(b"[launcher] rank 2 ended: -15\n") == (2, -15)
