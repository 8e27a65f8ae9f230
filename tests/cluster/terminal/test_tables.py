"""Facts about printed tables: nothing is cut off in a pipe, and a narrow terminal gets fewer columns."""

from __future__ import annotations

import pytest

from cluster.terminal.tables import Table, fitted, plain_lines, print_table

NODES = Table(
    title="stack deepcdk: CREATE_COMPLETE",
    columns=("role", "instance", "type", "state", "private", "public", "zone", "age", "price"),
    rows=(
        ("master", "i-0", "t3.medium", "running", "10.0.0.5", "198.18.1.2", "us-east-1a", "5:00", "$0.042/h"),
        ("worker", "i-1", "c5.2xlarge", "running (Terminating)", "10.0.0.5", "-", "us-east-1a", "5:00", "$0.340/h"),
    ),
    footer=("workers: 1 of 2 wanted, 16 at most",),
    expendable=("zone", "type", "private"),
)


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(NODES)
    lines = capsys.readouterr().out.splitlines()
    assert lines == list(plain_lines(NODES))
    assert lines[1].split()[:3] == ["role", "instance", "type"]


def test_a_narrow_terminal_gets_whole_lines_without_what_can_be_spared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    print_table(NODES)
    shown = capsys.readouterr().out
    assert "us-east-1a" not in shown
    assert "198.18.1.2" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert fitted(NODES, 1000) == NODES
    assert fitted(NODES, 10).columns == ("role", "instance", "state", "public", "age", "price")


def test_text_that_looks_like_markup_is_printed_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(Table(title="runs", columns=("run", "reason"), rows=(("[/red]", "[bold"),)))
    assert "[/red]" in capsys.readouterr().out
