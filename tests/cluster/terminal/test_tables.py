"""Printed tables: a pipe gets everything, and a narrow terminal gets fewer columns."""

from __future__ import annotations

import re
from collections.abc import Callable

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
RUNS = Table(title="runs", columns=("run", "state"), rows=(("one", "ended"),), footer=("one of them ended",))

Shown = Callable[[Table, int], list[str]]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Return a function that prints a table on a terminal of this width and returns its lines without colors."""

    def on_terminal(table: Table, columns: int) -> list[str]:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))
        print_table(table)
        return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()

    return on_terminal


def test_pipe_gets_whole_aligned_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(NODES)
    assert capsys.readouterr().out.splitlines() == list(plain_lines(NODES))
    rows = (("a", "long"), ("bcd", "x"))
    assert list(plain_lines(Table(title="t", columns=("n", "m"), rows=rows))) == ["t", "n    m", "a    long", "bcd  x"]
    assert list(plain_lines(Table(title="t", columns=("", ""), rows=rows))) == ["t", "a    long", "bcd  x"]


def test_terminal_gets_a_box_or_lines_without_optional_columns(shown: Shown) -> None:
    boxed, plain = shown(NODES, 200), shown(NODES, 80)
    for lines, has_box in ((boxed, True), (plain, False)):
        assert any("│" in line for line in lines) == any("us-east-1a" in line for line in lines) == has_box
        assert NODES.title in lines[0] and lines[-1] == NODES.footer[0]
    assert max(map(len, plain)) <= 80 and any("198.18.1.2" in line for line in plain)


@pytest.mark.parametrize(("columns", "boxed"), [(15, True), (14, False)])
def test_box_is_drawn_only_if_it_fits(columns: int, boxed: bool, shown: Shown) -> None:
    lines = shown(Table(title="runs", columns=RUNS.columns, rows=RUNS.rows), columns)
    assert any("│" in line for line in lines) == boxed
    assert len(lines[-1]) == (15 if boxed else 10)  # 3 + 5 + 7, or 3 + 2 + 5


def test_wide_lines_and_values_are_folded(shown: Shown) -> None:
    assert shown(RUNS, 12)[-2:] == ["one of them", "  ended"]
    lines = shown(Table(title="run", columns=("", ""), rows=(("command", "python " + "x" * 60),)), 40)
    assert any("│" in line for line in lines) and sum(line.count("x") for line in lines) == 60
    assert max(map(len, lines)) <= 40


def test_columns_are_omitted_in_order_until_lines_fit() -> None:
    table = Table(title="", columns=("ab", "cd"), rows=(("1234", "12"),), expendable=("cd",))
    assert fitted(table, 8).columns == ("ab", "cd")  # 4 + 2 between + 2
    assert fitted(table, 7) == Table(title="", columns=("ab",), rows=(("1234",),), expendable=("cd",))
    three = Table(title="", columns=("ab", "cd", "ef"), rows=(), expendable=("ef",))
    assert [len(fitted(three, columns).columns) for columns in (10, 9)] == [3, 2]  # 2 + 2 between + 2 + 2 between + 2
    assert fitted(NODES, 1000) == NODES
    assert fitted(NODES, 10).columns == ("role", "instance", "state", "public", "age", "price")


def test_markup_is_text_control_characters_are_escaped_and_a_missing_cell_is_an_error(shown: Shown) -> None:
    assert any("[/red]" in line for line in shown(Table(title="", columns=("a",), rows=(("[/red]",),)), 80))
    lines = shown(Table(title="a\x1b[2J", columns=("run",), rows=(("b\x1b[2J",),), footer=("c\x1b[2J",)), 80)
    assert "\x1b" not in "".join(lines) and lines[-1] == "c\\x1b[2J"
    with pytest.raises(ValueError, match="shorter"):
        shown(Table(title="", columns=("run", "state"), rows=(("one",),)), 80)
