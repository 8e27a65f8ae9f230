"""Facts about printed tables: nothing is cut off in a pipe, and a narrow terminal gets fewer columns."""

from __future__ import annotations

import re

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


@pytest.mark.parametrize(("columns", "boxed"), [(200, True), (80, False)])
def test_a_terminal_gets_a_box_where_one_fits(
    columns: int, boxed: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(NODES)
    shown = capsys.readouterr().out
    assert ("│" in shown) == boxed
    assert ("us-east-1a" in shown) == boxed
    assert NODES.title in shown and NODES.footer[0] in shown


def test_values_without_headings_are_folded_within_their_box(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_table(Table(title="run", columns=("", ""), rows=(("command", "python " + "x" * 60),)))
    shown = capsys.readouterr().out
    assert "│" in shown and shown.count("x") == 60
    assert max(map(len, shown.splitlines())) <= 40


def test_lines_in_a_pipe_are_aligned_and_a_row_without_headings_is_the_first() -> None:
    rows = (("a", "long"), ("bcd", "x"))
    assert list(plain_lines(Table(title="t", columns=("n", "m"), rows=rows))) == ["t", "n    m", "a    long", "bcd  x"]
    assert list(plain_lines(Table(title="t", columns=("", ""), rows=rows))) == ["t", "a    long", "bcd  x"]


def test_a_column_is_left_out_only_where_the_lines_do_not_fit() -> None:
    table = Table(title="", columns=("ab", "cd"), rows=(("1234", "12"),), expendable=("cd",))
    assert fitted(table, 8).columns == ("ab", "cd")  # 4 + 2 between + 2
    assert fitted(table, 7) == Table(title="", columns=("ab",), rows=(("1234",),), expendable=("cd",))
    three = Table(title="", columns=("ab", "cd", "ef"), rows=(), expendable=("ef",))
    assert [len(fitted(three, columns).columns) for columns in (10, 9)] == [3, 2]  # 2 + 2 between + 2 + 2 between + 2
    bare = Table(title="", columns=("ab",), rows=())
    assert fitted(bare, 1) == bare


@pytest.mark.parametrize(("columns", "boxed"), [(15, True), (14, False)])
def test_a_box_takes_three_columns_more_for_each_of_the_tables_and_one(
    columns: int, boxed: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(Table(title="runs", columns=("run", "state"), rows=(("one", "ended"),)))
    lines = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out).splitlines()
    assert lines[0].rstrip() == "runs"
    assert any("│" in line for line in lines) == boxed
    assert len(lines[-1]) == (15 if boxed else 10)  # 3 + 5 + 7, or 3 + 2 + 5


def test_a_plain_line_that_is_wider_than_the_terminal_is_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "12")
    print_table(Table(title="runs", columns=("run", "state"), rows=(("one", "ended"),), footer=("one of them ended",)))
    assert capsys.readouterr().out.splitlines()[-2:] == ["one of them", "  ended"]


def test_a_row_that_lacks_a_cell_is_an_error_on_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(ValueError, match="shorter"):
        print_table(Table(title="", columns=("run", "state"), rows=(("one",),)))


def test_control_characters_of_a_node_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table(title="a\x1b[2J", columns=("run",), rows=(("b\x1b[2J",),), footer=("c\x1b[2J",)))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert [line[0] for line in shown.splitlines()] == ["a", "r", "b", "c"]
