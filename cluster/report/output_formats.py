"""The formats of a report, and the files it is written to."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.files.atomic_write import write_atomically
from cluster.errors import DeepcdkError, UsageError
from cluster.plots.style import DARK, LIGHT, check_installed
from cluster.report import tables
from cluster.report.comparison import Comparison
from cluster.report.page import Page, comparison_page, run_page, sweep_page
from cluster.report.run_report import RunReport
from cluster.report.sweep import SweepReport, sweep_csv
from cluster.terminal.tables import Table

if TYPE_CHECKING:
    from jinja2 import Environment

FORMAT: Final = "deepcdk-report/3"
"""Version of the JSON documents. An incompatible change increases the number."""
HTML, MARKDOWN, JSON, CSV = "html", "md", "json", "csv"
FORMATS: Final = (HTML, MARKDOWN, JSON)
SWEEP_FORMATS: Final = (*FORMATS, CSV)
_NUMBER: Final = re.compile(r"[-+$]{0,2}\d[\d,]*(\.\d+)?(e[-+]\d+)?(:\d\d)*( ?%| s)?( \N{PLUS-MINUS SIGN} .*| \(.*)?")


def parse_formats(text: str, known: Sequence[str] = FORMATS) -> tuple[str, ...]:
    """Parse a value of --format, such as html,md,json, into formats without duplicates.

    Raises UsageError for an unknown format, or if none is given, and DeepcdkError for HTML without Matplotlib.
    """
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found or not set(found) <= set(known):
        raise UsageError("--format", text, f"must be one or several of {', '.join(known)}, comma-separated")
    if HTML in found:
        check_installed()
    return found


def rendered(report: RunReport | Comparison | SweepReport, kind: str) -> str:
    """Return the text of a report as html, md or json, or as csv for a sweep. HTML has plots, which need Matplotlib."""
    if kind == CSV and isinstance(report, SweepReport):
        return sweep_csv(report)
    if kind == JSON:
        name = "run" if isinstance(report, RunReport) else "comparison" if isinstance(report, Comparison) else "sweep"
        return json.dumps({"format": FORMAT, "report": name, **dataclasses.asdict(report)}, indent=1) + "\n"
    draw = kind == HTML
    if isinstance(report, SweepReport):
        page = sweep_page(report, draw=draw)
    else:
        page = run_page(report, draw=draw) if isinstance(report, RunReport) else comparison_page(report, draw=draw)
    return _html(page) if draw else _markdown(page)


def numeric_columns(table: Table) -> frozenset[int]:
    """Return the numbers of the columns, counted from 0, in which all known values are numbers.

    A number may have a unit or a spread. Columns without a known value are left out.
    """
    columns = [set(column) - {"", "-", "unknown"} for column in zip(*table.rows, strict=True)]
    return frozenset(n for n, cells in enumerate(columns) if cells and all(map(_NUMBER.fullmatch, cells)))


def templates() -> Environment:
    """Return the environment of Jinja for the reports' templates. It escapes each value, and an unknown name is an
    error.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(__package__)
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.globals |= {"light": LIGHT, "dark": DARK, "format": FORMAT, "mark": tables.MARK}
    found.filters["numeric_columns"] = numeric_columns
    return found


def _html(page: Page) -> str:
    """Render a page as one file that has no scripts and loads no other file."""
    return templates().get_template("page.html.j2").render(page=page) + "\n"


def _markdown(page: Page) -> str:
    """Render headlines, tables, log and points as Markdown, for an issue, a wiki or a terminal, without figures."""
    parts = [f"# {escaped(page.title)}"]
    if page.state:
        parts.append(escaped(f"{page.state}, {page.subtitle}"))
    if page.reason:
        parts.append(f"> {escaped(page.reason)}")
    for section in page.sections:
        if section.title:
            parts.append(f"## {section.title}")
        if section.text:
            parts.append(escaped(section.text))
        if section.headlines:
            rows = tuple((each.title, each.text, each.note) for each in section.headlines)
            parts += _table(Table(title="", columns=("figure", "value", "note"), rows=rows))
        if section.log:
            parts.append("\n".join(f"    {line}" for line in section.log))
        for table in (*section.tables, *section.folded):
            parts += _table(table)
        if section.images:
            rows = tuple((each.truth, each.recognized, f"{each.confidence:.1%}") for each in section.images)
            parts += _table(
                Table(title="Most confident mistakes", columns=("true class", "recognized as", "sure"), rows=rows)
            )
        if section.points:
            parts.append("\n".join(f"- {escaped(each)}" for each in section.points))
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"### {escaped(table.title)}"
    numeric = numeric_columns(table)
    rule = ["---:" if number in numeric else "---" for number in range(len(table.columns))]
    lines = [[escaped(cell) for cell in table.columns], rule, *([escaped(cell) for cell in row] for row in table.rows)]
    yield "\n".join(f"| {' | '.join(cell or ' ' for cell in line)} |" for line in lines)


def escaped(text: str) -> str:
    """Escape a text for Markdown and for the HTML that Markdown allows."""
    return re.sub(r"([\\`*_\[\]<>&|~$#!])", r"\\\1", text)


def destinations(into: str, default: Path, formats: Sequence[str]) -> dict[str, Path]:
    """Return the path of each format's file. Nothing is written.

    `into` is a directory (it exists, or ends with a slash), a file for a single format, or "" for the place of
    `default`. `default` is a path without suffix; its name is also used in a directory. Raises UsageError for a file
    with several formats.
    """
    path = Path(into) if into else default.parent
    if not into or into.endswith("/") or path.is_dir():
        return {kind: path / f"{default.name}.{kind}" for kind in formats}
    if len(formats) > 1:
        raise UsageError("--into", into, "must be a directory (with a trailing /) for several files")
    return {formats[0]: path}


def write(path: Path, text: str) -> None:
    """Write a report to a file atomically, and create its directory.

    If that fails, raises DeepcdkError with the remedy --into.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise DeepcdkError(
            f"the report cannot be written: {error.strerror}",
            where=str(path),
            remedy="give another location with --into",
        ) from None
