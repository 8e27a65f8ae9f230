"""The tables of a comparison, the same in HTML and in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cluster.report.comparison import SCALING, Comparison, Spread
from cluster.report.report_tables import ReportTable
from cluster.report.run_report import (
    ACCURACY,
    COST,
    DATA_WAIT,
    FIRST_STEP_AFTER,
    SECONDS,
    SPEED_PER_NODE,
    TRAINING_SHARE,
)
from cluster.report.run_settings import CLUSTER
from cluster.report.wording import date_text, dollars, percent, rate_text, time_text

MARK: Final = "\N{NOT EQUAL TO} "
"""Before a value that is not that of the first run."""
_FORMS: Final[dict[str, Callable[[float | None], str]]] = {
    ACCURACY: percent,
    SECONDS: time_text,
    COST: dollars,
    SPEED_PER_NODE: rate_text,
    TRAINING_SHARE: percent,
    FIRST_STEP_AFTER: time_text,
    DATA_WAIT: percent,
    SCALING: percent,
}


def runs_table(comparison: Comparison) -> ReportTable:
    """Return which label is which run."""
    rows = tuple(
        (
            label,
            run.run_id,
            run.group(CLUSTER).get("stack", "-"),
            run.recipe or "-",
            run.state,
            f"{run.nodes}",
            run.group("training").get("seed", "-"),
            date_text(run.started),
        )
        for label, run in zip(comparison.labels, comparison.runs, strict=True)
    )
    columns = ("", "run", "cluster", "recipe", "state", "nodes", "seed", "started")
    return ReportTable(title="Runs", columns=columns, rows=rows, numeric=frozenset({5, 6}))


def figures_table(comparison: Comparison) -> ReportTable:
    """Return each run's figures, side by side."""
    rows = tuple((same[0].title, *(each.text for each in same)) for same in zip(*comparison.headlines, strict=True))
    columns = ("", *comparison.labels)
    return ReportTable(title="By run", columns=columns, rows=rows, numeric=frozenset(range(1, len(columns))))


def repeats_table(comparison: Comparison) -> ReportTable:
    """Return the mean figures of repeats with their spread; no row where no run has been repeated."""
    repeated = [group for group in comparison.repeats if len(group.runs) > 1]
    titles = {each.key: each.title for each in comparison.headlines[0]}
    keys = [key for key, _ in comparison.repeats[0].figures]
    rows = tuple(
        (titles[key], *(_spread_text(key, dict(group.figures)[key]) for group in repeated)) for key in keys if repeated
    )
    columns = ("", *(f"{group.label}, {len(group.runs)} runs" for group in repeated))
    title = "Repeats: mean \N{PLUS-MINUS SIGN} standard deviation (least to most)"
    return ReportTable(title=title, columns=columns, rows=rows, numeric=frozenset(range(1, len(columns))))


def _spread_text(key: str, spread: Spread | None) -> str:
    if spread is None:
        return "unknown"
    mean, least, most = (_FORMS[key](value) for value in (spread.mean, spread.least, spread.most))
    if spread.deviation is None:
        return mean
    return f"{mean} \N{PLUS-MINUS SIGN} {_FORMS[key](spread.deviation)} ({least} to {most})"


def differences_table(comparison: Comparison) -> ReportTable:
    """Return the settings that differ; a value that is not the first run's is marked."""
    rows = tuple(
        (
            each.name,
            each.group,
            each.values[0],
            *(value if value == each.values[0] else f"{MARK}{value}" for value in each.values[1:]),
        )
        for each in comparison.settings
        if each.differs
    )
    return ReportTable(title="What differs", columns=("setting", "of", *comparison.labels), rows=rows)


def same_settings(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Return group, name and value of each setting that is the same in all runs."""
    return [(each.group, each.name, each.values[0]) for each in comparison.settings if not each.differs]
