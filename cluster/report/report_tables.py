"""The tables of a report, the same in HTML and in Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from cluster.planner.outcome import Outcome
from cluster.report.model import ConfusionMatrix, Curves, NodeSpan, Timeline
from cluster.report.wording import percent, rate_text, time_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of texts; the first cell of a row names it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    """Columns of numbers, counted from 0."""


def epoch_table(curves: Curves) -> ReportTable:
    """Return the curves' numbers, a row an epoch; columns without any number are left out."""
    split = curves.evaluated
    columns = (
        ("epoch", [f"{p.epoch}" for p in curves.epochs]),
        ("time", [time_text(p.at_s) for p in curves.epochs]),
        ("training loss", [_digits(p.train_loss) for p in curves.epochs]),
        (f"{split} loss", [_digits(p.test_loss) for p in curves.epochs]),
        ("training accuracy", [_share(p.train_accuracy) for p in curves.epochs]),
        (f"{split} accuracy", [_share(p.test_accuracy) for p in curves.epochs]),
        ("images/s per node", [_rate(p.images_per_s_per_node) for p in curves.epochs]),
        ("global batch", [_whole(p.global_batch) for p in curves.epochs]),
        ("image size", [_whole(p.image_size) for p in curves.epochs]),
        ("wait for images, s", [_digits(p.data_wait_s) for p in curves.epochs]),
    )
    filled = [(name, cells) for name, cells in columns if any(cells)]
    return ReportTable(
        title="By epoch",
        columns=tuple(name for name, _ in filled),
        rows=tuple(zip(*(cells for _, cells in filled), strict=True)),
        numeric=frozenset(range(len(filled))),
    )


def phase_table(timeline: Timeline) -> ReportTable:
    """Return how long each phase took."""
    several = len({phase.attempt for phase in timeline.phases}) > 1
    return ReportTable(
        title="Phases",
        columns=("phase", *(["attempt"] if several else []), "from", "took"),
        rows=tuple(
            (phase.name, *([f"{phase.attempt}"] if several else []), time_text(phase.begin_s), time_text(phase.seconds))
            for phase in timeline.phases
        ),
        numeric=frozenset({1, 2, 3} if several else {1, 2}),
    )


def outcome_table(outcomes: Sequence[Outcome]) -> ReportTable:
    """Return what a run was expected to take beside what it took."""
    columns = ("", "expected", "actual", "difference")
    rows = tuple(each.texts for each in outcomes)
    return ReportTable(title="Expected and actual", columns=columns, rows=rows, numeric=frozenset({1, 2, 3}))


def event_table(timeline: Timeline) -> ReportTable:
    """Return what happened when."""
    rows = tuple((time_text(max(0.0, event.at_s)), event.kind, event.text) for event in timeline.events)
    return ReportTable(title="Events", columns=("at", "what", ""), rows=rows, numeric=frozenset({0}))


def node_table(timeline: Timeline) -> ReportTable:
    """Return the nodes, and what the checks found on each; what is the same nothing on all is left out."""
    checks = list(dict.fromkeys(name for node in timeline.nodes for name, found in node.checks if found != "-"))

    def row(node: NodeSpan) -> tuple[str, ...]:
        found = dict(node.checks)
        kind = (node.name, node.address, node.instance_type or "-", node.zone or "-", f"{node.ranks}")
        ready = "-" if node.joined_s is None else time_text(node.joined_s)
        return (*kind, ready, node.placement or "-", *(found.get(name, "-") for name in checks))

    return ReportTable(
        title="Nodes",
        columns=("node", "address", "type", "zone", "ranks", "ready after", "first rank on", *checks),
        rows=tuple(row(node) for node in timeline.nodes),
        numeric=frozenset({4, 5}),
    )


def confused_table(matrix: ConfusionMatrix) -> ReportTable:
    """Return the pairs that were confused most."""
    rows = tuple((pair.truth, pair.recognised, f"{pair.images:,}") for pair in matrix.confused)
    return ReportTable(
        title="Most often confused", columns=("true class", "taken for", "images"), rows=rows, numeric=frozenset({2})
    )


def class_table(matrix: ConfusionMatrix) -> ReportTable:
    """Return recall and precision of each class, the least recognised first where there are many."""
    order: Sequence[int] = range(len(matrix.labels))
    title = "By class"
    if len(matrix.labels) > 30:
        order = sorted(order, key=lambda number: (matrix.recall[number] is None, matrix.recall[number] or 0.0))[:30]
        title = "The 30 classes recognised least"
    rows = tuple(
        (
            matrix.labels[number],
            f"{sum(matrix.counts[number]):,}",
            _share(matrix.recall[number]) or "-",
            _share(matrix.precision[number]) or "-",
        )
        for number in order
    )
    return ReportTable(
        title=title, columns=("class", "images", "recall", "precision"), rows=rows, numeric=frozenset({1, 2, 3})
    )


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _share(value: float | None) -> str:
    return "" if value is None else percent(value)


def _rate(value: float | None) -> str:
    return "" if value is None else rate_text(value)


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
