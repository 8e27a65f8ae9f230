"""Reading a growing file: in bounded memory, and as soon as another node writes it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from agent.runs.tail import MAX_LINE, Tail
from tests.agent.runs.test_run_messages import append
from tests.nfs import nfs_client


def test_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert list(Tail(tmp_path / "none").lines()) == []


def test_endless_line_uses_bounded_memory(tmp_path: Path) -> None:
    """The sparse file looks like one line of 300 MiB."""
    path = tmp_path / "metrics.jsonl"
    with path.open("wb") as file:
        file.truncate(300 << 20)
    tail = Tail(path)
    tracemalloc.start()
    try:
        assert list(tail.lines()) == []
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    append(path, "\nnext\n")
    assert [len(line) for line in tail.lines()] == [MAX_LINE, len("next")]


@pytest.mark.root
def test_metrics_that_another_node_begins_to_write_are_seen_at_once(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    written = tmp_path / "server/metrics.jsonl"
    with nfs_client(tmp_path / "server", tmp_path / "client") as shared:
        tail = Tail(shared / "metrics.jsonl")
        assert list(tail.lines()) == []
        append(written, "one\n")
        assert list(tail.lines()) == ["one"]
        append(written, "two\n")
        assert list(tail.lines()) == ["two"]
