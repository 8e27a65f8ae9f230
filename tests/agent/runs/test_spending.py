"""The stored record of a run's spending."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.runs import spending
from agent.runs.run_directory import RunDirectory
from agent.runs.spending import NODE_MARGIN_S, SPENT_FILE, Spent

LIVE = Spent(seconds=100.0, usd=1.0, usd_per_hour=36.0, counted=1000.0, ends=1500.0)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    directory = RunDirectory(path=tmp_path)
    spending.write(directory, LIVE)
    assert spending.read(directory) == LIVE


@pytest.mark.parametrize("text", ["", "[]", '{"seconds": 1, "unknown": 2}'])
def test_an_invalid_file_counts_as_missing(tmp_path: Path, text: str) -> None:
    directory = RunDirectory(path=tmp_path)
    assert spending.read(directory) is None
    (tmp_path / SPENT_FILE).write_text(text)
    assert spending.read(directory) is None


def test_the_time_after_a_supervisor_was_lost_counts_until_it_was_found(tmp_path: Path) -> None:
    directory = RunDirectory(path=tmp_path)
    spending.write(directory, LIVE)
    spending.settle(directory, now=1200.0)
    found = spending.read(directory)
    assert found == Spent(seconds=300.0, usd=3.0, usd_per_hour=36.0, counted=1200.0)
    spending.settle(directory, now=9000.0)
    assert spending.read(directory) == found, "the attempt has been counted"


def test_it_counts_no_longer_than_the_nodes_let_the_ranks_run(tmp_path: Path) -> None:
    directory = RunDirectory(path=tmp_path)
    spending.write(directory, LIVE)
    spending.settle(directory, now=1e9)
    found = spending.read(directory)
    assert found is not None and found.seconds == 100.0 + 500.0 + NODE_MARGIN_S


def test_a_run_without_bounds_is_not_counted_on(tmp_path: Path) -> None:
    directory = RunDirectory(path=tmp_path)
    spending.settle(directory, now=1e9)
    assert spending.read(directory) is None
