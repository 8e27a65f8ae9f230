"""The tables of a report, for HTML and Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cluster.report.comparison import Comparison, Spread, by_key, keys_of
from cluster.report.confused_classes import ConfusionMatrix
from cluster.report.curves import Curves
from cluster.report.run_report import FIGURES, RunReport
from cluster.report.run_settings import CLUSTER, TRAINING
from cluster.report.shown_values import date_text, percent, rate_text, time_text
from cluster.report.timeline import NodeSpan, Timeline
from cluster.terminal.tables import Table

MARK: Final = "\N{NOT EQUAL TO} "
"""Marks a value that differs from the first run's."""
MAX_CLASSES: Final = 30
"""Maximum number of classes to show. Of more, only those with the lowest recall are shown."""


def epoch_table(curves: Curves) -> Table:
    """Build a table with one row per epoch: time, losses, accuracies, speed, settings. Empty columns are left out."""
    split = curves.evaluated
    columns: dict[str, tuple[str, Callable[[float], str]]] = {
        "epoch": ("epoch", "{}".format),
        "time": ("at_s", time_text),
        "training loss": ("train_loss", "{:.4g}".format),
        f"{split} loss": ("evaluation_loss", "{:.4g}".format),
        "training accuracy": ("train_accuracy", percent),
        f"{split} accuracy": ("evaluation_accuracy", percent),
        "images/s per node": ("images_per_s_per_node", rate_text),
        "global batch": ("global_batch", "{:,}".format),
        "image size": ("image_size", "{:,}".format),
        "wait for images, s": ("data_wait_s", "{:.4g}".format),
    }
    cells = {
        title: ["" if (value := getattr(point, name)) is None else form(value) for point in curves.epochs]
        for title, (name, form) in columns.items()
    }
    filled = {title: column for title, column in cells.items() if any(column)}
    return Table(title="By epoch", columns=tuple(filled), rows=tuple(zip(*filled.values(), strict=True)))


def timeline_tables(report: RunReport) -> tuple[Table, ...]:
    """Build the tables of phases, of expected and actual figures, and of events. Each may be without rows."""
    timeline = report.timeline
    is_resumed = len({phase.attempt for phase in timeline.phases}) > 1
    phases = tuple(
        (phase.name, *([f"{phase.attempt}"] if is_resumed else []), time_text(phase.begin_s), time_text(phase.seconds))
        for phase in timeline.phases
    )
    events = tuple((time_text(max(0.0, event.at_s)), event.kind, event.text) for event in timeline.events)
    expected = tuple(each.texts for each in report.outcomes)
    return (
        Table(title="Phases", columns=("phase", *(["attempt"] if is_resumed else []), "from", "took"), rows=phases),
        Table(title="Expected and actual", columns=("", "expected", "actual", "difference"), rows=expected),
        Table(title="Events", columns=("at", "what", ""), rows=events),
    )


def node_table(timeline: Timeline) -> Table:
    """Build the table of nodes: address, type, zone, ranks, time until ready, and place of the first rank.

    Each pre-flight check that found something has a column too.
    """
    checks = list(dict.fromkeys(name for node in timeline.nodes for name, found in node.checks if found != "-"))

    def row(node: NodeSpan) -> tuple[str, ...]:
        found = dict(node.checks)
        ready = "-" if node.joined_s is None else time_text(node.joined_s)
        known = (node.name, node.address, node.instance_type or "-", node.zone or "-", f"{node.ranks}", ready)
        return (*known, node.placement or "-", *(found.get(name, "-") for name in checks))

    columns = ("node", "address", "type", "zone", "ranks", "ready after", "first rank on", *checks)
    return Table(title="Nodes", columns=columns, rows=tuple(map(row, timeline.nodes)))


def confusion_tables(matrix: ConfusionMatrix) -> tuple[Table, Table]:
    """Build the tables of the most confused pairs, and of recall and precision by class.

    With more than MAX_CLASSES classes, the second table has only those with the lowest recall.
    """
    order, title = list(range(len(matrix.labels))), "By class"
    if len(order) > MAX_CLASSES:
        order.sort(key=lambda number: (matrix.recall[number] is None, matrix.recall[number] or 0.0))
        order, title = order[:MAX_CLASSES], f"The {MAX_CLASSES} classes with the lowest recall"

    def share(value: float | None) -> str:
        return "-" if value is None else percent(value)

    classes = tuple(
        (matrix.labels[n], f"{sum(matrix.counts[n]):,}", share(matrix.recall[n]), share(matrix.precision[n]))
        for n in order
    )
    pairs = tuple((pair.truth, pair.recognized, f"{pair.images:,}") for pair in matrix.confused)
    return (
        Table(title="Most frequent confusions", columns=("true class", "recognized as", "images"), rows=pairs),
        Table(title=title, columns=("class", "images", "recall", "precision"), rows=classes),
    )


def setting_tables(report: RunReport) -> tuple[Table, ...]:
    """Build one table for each group of a run's settings, with their names and values."""
    return tuple(
        Table(title=title[:1].upper() + title[1:], columns=("", "value"), rows=tuple(group.items()))
        for title, group in report.settings.items()
    )


def runs_table(comparison: Comparison) -> Table:
    """Build the table that shows the run behind each label: id, cluster, recipe, state, nodes, seed and start."""
    rows = tuple(
        (
            label,
            run.run_id,
            run.group(CLUSTER).get("stack", "-"),
            run.recipe or "-",
            run.state,
            f"{run.nodes}",
            run.group(TRAINING).get("seed", "-"),
            date_text(run.started),
        )
        for label, run in zip(comparison.labels, comparison.runs, strict=True)
    )
    return Table(title="Runs", columns=("", "run", "cluster", "recipe", "state", "nodes", "seed", "started"), rows=rows)


def figures_table(comparison: Comparison) -> Table:
    """Build the table of headlines: a row for each figure, and a column for each run, under its label.

    The cell of a run without the figure is "-". One run may have a test accuracy, and another a validation accuracy.
    """
    runs = list(map(by_key, comparison.headlines))
    rows = tuple(
        (FIGURES[key][0], *(run[key].text if key in run else "-" for run in runs))
        for key in keys_of(comparison.headlines)
    )
    return Table(title="By run", columns=("", *comparison.labels), rows=rows)


def repeats_table(comparison: Comparison) -> Table:
    """Build the table of the mean and spread of repeats' headlines. It has no rows if no run was repeated."""
    repeated = [group for group in comparison.repeats if len(group.runs) > 1]
    keys = dict.fromkeys(key for group in repeated for key in group.figures)
    rows = tuple((FIGURES[key][0], *(_spread_text(key, group.figures.get(key)) for group in repeated)) for key in keys)
    columns = ("", *(f"{group.label}, {len(group.runs)} runs" for group in repeated))
    return Table(
        title="Repeats: mean \N{PLUS-MINUS SIGN} standard deviation (least to most)", columns=columns, rows=rows
    )


def _spread_text(key: str, spread: Spread | None) -> str:
    form = FIGURES[key][1]
    if spread is None or spread.deviation is None:
        return form(spread.mean if spread else None)
    mean, deviation, least, most = map(form, (spread.mean, spread.deviation, spread.least, spread.most))
    return f"{mean} \N{PLUS-MINUS SIGN} {deviation} ({least} to {most})"


def differences_table(comparison: Comparison) -> Table:
    """Build the table of settings that differ. Values that differ from the first run's are marked."""
    rows = tuple(
        (each.name, each.group, *(value if value == each.values[0] else f"{MARK}{value}" for value in each.values))
        for each in comparison.settings
        if each.differs
    )
    return Table(title="Differences", columns=("setting", "of", *comparison.labels), rows=rows)


def same_table(comparison: Comparison) -> Table:
    """Build the table of settings that are the same in all runs."""
    rows = tuple((f"{each.group}: {each.name}", each.values[0]) for each in comparison.settings if not each.differs)
    return Table(title="The same in all runs", columns=("", "value"), rows=rows)
