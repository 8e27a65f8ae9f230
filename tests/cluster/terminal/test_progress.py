"""Progress: occasional plain lines, and human-readable amounts."""

from __future__ import annotations

import io

import pytest

from cluster.terminal.progress import EVERY_S, BarProgress, PlainProgress, make


def test_plain_lines_are_printed_at_start_and_at_intervals() -> None:
    now, lines = [0.0], list[str]()
    with PlainProgress(lines.append, clock=lambda: now[0]) as display:
        display.begin("uploading", 2000, 5_000_000)
        display.at(1, 2500)
        now[0] = EVERY_S
        display.at(1000, 2_500_000)
        display.at(1001, 2_502_500)
        display.note("a remark")
    assert lines == [
        "uploading: 2,000 files, 5.0 MB",
        "uploading: 1,000 of 2,000 files, 2.5 MB of 5.0 MB",
        "a remark",
    ]


def test_bar_shows_each_step_and_messages_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    display = make(terminal=True, write=print)
    assert isinstance(display, BarProgress)
    display._progress.console.file = shown = io.StringIO()
    with display:
        display.begin("reading", 3, 1000)
        display.at(2, 600)
        display.begin("uploading", 3, 1000)
        display.note("[not markup]")
    assert "[not markup]" in shown.getvalue()
    assert [task.completed for task in display._progress.tasks] == [1000, 1000]
