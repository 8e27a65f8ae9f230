"""Tables and code in Markdown, whatever characters are in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """Return a text as code in a line; nothing for none."""
    return f"`{text}`" if text else ""


def rows(columns: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar in a cell does not end it."""
    lines = [columns, ["---"] * len(columns), *cells]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
