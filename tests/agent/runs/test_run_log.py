"""The last lines of a run's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.runs import run_log
from agent.runs.run_directory import RunDirectory


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(path=tmp_path / "one")
    found.path.mkdir()
    return found


def test_only_the_end_of_a_long_log_is_read(directory: RunDirectory) -> None:
    with directory.log.open("wb") as file:
        file.truncate(1 << 40)  # a hole of 1 TiB: reading it whole would never end
        file.seek(0, os.SEEK_END)
        file.write(b"\nline 1\nline 2\n")
    assert run_log.last_lines(directory.log, 2) == ["line 1", "line 2"]


def test_last_lines_of_one_rank_are_found_before_those_of_many_others(directory: RunDirectory) -> None:
    others = "".join(f"[{rank}]<stderr>:{'x' * 5000}\n" for rank in range(64) if rank != 5)
    end = "[launcher] rank 5 exited first: 1\n"
    directory.log.write_text(f"[5]<stderr>:RuntimeError: the cause\n{others}{end}")
    own = ["[5]<stderr>:RuntimeError: the cause"]
    assert run_log.last_lines(directory.log, rank=5, size=1 << 20) == own
    last = run_log.last_lines(directory.log, rank=5, size=10_000)
    assert last == [end.strip()], "the first of these bytes are of a cut line"
    text = run_log.last_text(directory.log, 1 << 20)
    directory.log.unlink()
    assert run_log.last_lines(directory.log, rank=5, size=1 << 20, text=text) == own
