"""Tables as the tasks print them: in a box on a wide terminal, else as plain lines. rich is imported only to print a
box.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable, Iterable

from cluster.terminal import wrap


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table to print."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    footer: tuple[str, ...] = ()
    expendable: tuple[str, ...] = ()
    """Columns to drop on a narrow terminal, in this order."""


def fitted(table: Table, columns: int) -> Table:
    """Drop expendable columns, in their order, until plain lines of the table need at most `columns` characters.

    Return the new table. Without expendable columns left, it may still be too wide.
    """
    for name in table.expendable:
        if sum(_widths(table)) + 2 * (len(table.columns) - 1) <= columns:
            break
        kept = [n for n, column in enumerate(table.columns) if column != name]
        table = dataclasses.replace(
            table,
            columns=tuple(table.columns[n] for n in kept),
            rows=tuple(tuple(row[n] for n in kept) for row in table.rows),
        )
    return table


def _widths(table: Table) -> list[int]:
    return [max(map(len, cells)) for cells in zip(table.columns, *table.rows, strict=True)]


def plain_lines(table: Table) -> Iterable[str]:
    """Yield the table as aligned text, for a pipe or a narrow terminal."""
    rows = [table.columns, *table.rows] if any(table.columns) else list(table.rows)
    widths = _widths(table)
    yield table.title
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()
    yield from table.footer


def _printable(table: Table) -> Table:
    """Escape control characters in a table, because its text may come from the nodes. Name the installed command."""

    def text(cell: str) -> str:
        return wrap.printable(wrap.with_command(cell))

    return dataclasses.replace(
        table,
        title=text(table.title),
        rows=tuple(tuple(map(text, row)) for row in table.rows),
        footer=tuple(map(text, table.footer)),
    )


def print_table(table: Table, write: Callable[[str], None] | None = None) -> None:
    """Print a table on stdout: in a box on a terminal that is wide enough, else as plain lines.

    On a narrow terminal, expendable columns are dropped. A table without headings always has a box on a terminal,
    because its cells may be folded. With `write`, the plain lines are passed to `write` instead.
    """
    table = _printable(table)
    if write:
        for line in plain_lines(table):
            write(line)
        return
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    boxed = sum(_widths(table)) + 3 * len(table.columns) + 1
    # A table without headings is a list of values, which may be folded.
    if not terminal or (boxed > terminal and any(table.columns)):
        for line in plain_lines(fitted(table, terminal) if terminal else table):
            print(wrap.fold(line, terminal) if terminal else line)
        return
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    shown_table = RichTable(title=Text(table.title), title_justify="left", show_header=any(table.columns))
    for column in table.columns:
        shown_table.add_column(column, overflow="fold")
    for row in table.rows:
        shown_table.add_row(*(Text(cell) for cell in row))
    console.print(shown_table)
    for line in table.footer:
        print(wrap.fold(line, terminal))
