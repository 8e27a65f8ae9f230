"""A report as Markdown: headlines and tables, for an issue, a wiki or a terminal. Every text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cluster.report.comparison import Comparison
from cluster.report.comparison_tables import (
    differences_table,
    figures_table,
    repeats_table,
    runs_table,
    same_settings,
)
from cluster.report.model import RunReport
from cluster.report.report_tables import (
    ReportTable,
    class_table,
    confused_table,
    epoch_table,
    event_table,
    node_table,
    outcome_table,
    phase_table,
)
from cluster.report.wording import date_text


def escaped(text: str) -> str:
    """Return a text in which Markdown and the HTML that it allows find nothing to act on."""
    return re.sub(r"([\\`*_\[\]<>&|~$#!])", r"\\\1", text)


def run_markdown(report: RunReport) -> str:
    """Return the report of one run as Markdown."""
    parts = [f"# {escaped(report.run_id)}", _subtitle(report)]
    if report.reason:
        parts.append(f"> {escaped(report.reason)}")
    figures = tuple((each.title, each.text, each.note) for each in report.headlines)
    parts.append(_table(ReportTable(title="", columns=("figure", "value", "counts"), rows=figures)))
    if report.last_lines:
        parts += ["## Last lines of the log", "\n".join(f"    {line}" for line in report.last_lines)]
    if report.curves.epochs:
        parts += ["## Curves", _table(epoch_table(report.curves))]
    parts += [
        "## Timeline",
        *_tables(phase_table(report.timeline), outcome_table(report.outcomes)),
        *_tables(event_table(report.timeline), node_table(report.timeline)),
    ]
    if report.confusion:
        parts += ["## Confusion matrix", *_tables(confused_table(report.confusion), class_table(report.confusion))]
    if report.mistakes:
        mistakes = tuple((each.truth, each.recognised, f"{each.confidence:.1%}") for each in report.mistakes)
        columns = ("true class", "taken for", "confidence")
        parts += _tables(ReportTable(title="Surest mistakes", columns=columns, rows=mistakes, numeric=frozenset({2})))
    parts.append("## Settings and versions")
    for group in report.settings:
        rows = tuple((each.name, each.value) for each in group.settings)
        parts += _tables(ReportTable(title=group.title[:1].upper() + group.title[1:], columns=("", "value"), rows=rows))
    if report.missing:
        parts += ["## What this record does not have", "\n".join(f"- {escaped(each)}" for each in report.missing)]
    return "\n\n".join(parts) + "\n"


def comparison_markdown(comparison: Comparison) -> str:
    """Return runs side by side as Markdown."""
    tables = (
        runs_table(comparison),
        figures_table(comparison),
        repeats_table(comparison),
        differences_table(comparison),
    )
    same = tuple((group, name, value) for group, name, value in same_settings(comparison))
    rest = ReportTable(title="The same in all runs", columns=("of", "setting", "value"), rows=same)
    return "\n\n".join([f"# {len(comparison.runs)} runs compared", *_tables(*tables, rest)]) + "\n"


def _subtitle(report: RunReport) -> str:
    words = [report.state, report.recipe or "a program of your own", f"{report.nodes} nodes", f"{report.ranks} ranks"]
    return escaped(", ".join([*words, f"started {date_text(report.started)}"]))


def _tables(*tables: ReportTable) -> Iterable[str]:
    for table in tables:
        if table.rows:
            yield f"### {escaped(table.title)}"
            yield _table(table)


def _table(table: ReportTable) -> str:
    rule = ["---:" if number in table.numeric else "---" for number in range(len(table.columns))]
    lines = [[escaped(cell) for cell in table.columns], rule, *([escaped(cell) for cell in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(cell or ' ' for cell in line)} |" for line in lines)
