"""The figures of a report, each an SVG with a title, a description, and the numbers that it shows beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cluster.report.curve_plots import curve_plots
from cluster.report.line_plots import draw_plot
from cluster.report.model import CHECKPOINT, FAULT, RESUMED, STRAGGLER, ConfusionMatrix, RunReport, Timeline
from cluster.report.svg import FAINT, INK, LINE, SERIES, WIDTH_IN, Drawn, drawing, new_figure, svg_text
from cluster.report.timeline import PHASES
from cluster.report.wording import percent, time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NODES: Final = 24
"""Nodes that a timeline shows, each on a line."""
MOST_DOTS: Final = 2000
"""Pairs of classes of a larger matrix that are drawn: those with the largest shares."""
MOST_WITH_NUMBERS: Final = 20
"""Classes up to which each cell of the confusion matrix holds its count."""
TIMELINE: Final = "Timeline"


def run_figures(report: RunReport) -> tuple[Drawn, ...]:
    """Draw what the report of one run has."""
    with drawing():
        plots = [draw_plot(plot) for plot in curve_plots(report.curves)]
        timeline = [draw_timeline(report.timeline)] if report.timeline.phases else []
        confusion = [draw_confusion(report.confusion)] if report.confusion else []
    return (*plots, *timeline, *confusion)


def draw_timeline(timeline: Timeline) -> Drawn:
    """Draw phases, events and nodes over the time since the run's start, for a wide screen and for a narrow one."""
    faults = sum(event.kind == FAULT for event in timeline.events)
    spans = ", ".join(f"{phase.name} {time_text(phase.seconds)}" for phase in timeline.phases)
    description = f"{time_text(timeline.seconds)} on {len(timeline.nodes)} nodes: {spans}. Faults: {faults}."

    def drawn(name: str, width_in: float, columns: int) -> str:
        figure = _timeline_figure(timeline, width_in, columns)
        return svg_text(figure, name=name, title=TIMELINE, description=description)

    return Drawn(
        name="timeline",
        title=TIMELINE,
        description=description,
        svg=drawn("timeline", 10.0, 5),
        narrow_svg=drawn("timeline-narrow", WIDTH_IN, 2),
    )


def _timeline_figure(timeline: Timeline, width_in: float, columns: int) -> Figure:
    nodes = timeline.nodes[:MOST_NODES]
    lanes = ["phases", "events", *(node.name for node in nodes)]
    figure = new_figure(width_in, 0.5 + 0.25 * len(lanes) + 0.2 * -(-(len(PHASES) + 4) // columns))
    axes = figure.add_subplot()
    for number, name in enumerate(PHASES):
        spans = [(phase.begin_s, phase.seconds) for phase in timeline.phases if phase.name == name]
        if not spans:
            continue
        axes.broken_barh(spans, (-0.31, 0.62), color=SERIES[number % len(SERIES)], label=name)
    for kind, marker, number in (
        (CHECKPOINT, "^", 2),
        (RESUMED, ">", 0),
        (STRAGGLER, "s", 3),
        (FAULT, "X", 1),
    ):
        times = [event.at_s for event in timeline.events if event.kind == kind]
        if times:
            axes.plot(times, [1] * len(times), linestyle="", marker=marker, ms=6, color=SERIES[number], label=kind)
    for lane, node in enumerate(nodes, 2):
        begin = timeline.seconds if node.joined_s is None else node.joined_s
        axes.barh(lane, node.left_s - begin, left=begin, height=0.5, color=FAINT, alpha=0.55)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.set_xlim(0, timeline.seconds or 1)
    axes.xaxis.set_major_formatter(lambda seconds, _: time_text(seconds) if seconds else "0")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=columns, columnspacing=1.2)
    return figure


def draw_confusion(matrix: ConfusionMatrix) -> Drawn:
    """Draw the matrix, shaded by row on a scale of square roots, on which one image in a hundred can be seen."""
    classes = len(matrix.labels)
    shares = [[count / (sum(row) or 1) for count in row] for row in matrix.counts]
    side = min(7.2, max(3.6, 0.9 + 0.34 * classes)) if classes <= MOST_WITH_NUMBERS else 6.0
    figure = new_figure(side, side * 0.96)
    axes = figure.add_subplot()
    if classes <= MOST_WITH_NUMBERS:
        _draw_cells(axes, matrix, shares)
        axes.set_xticks(
            range(classes),
            [_cut(label) for label in matrix.labels],
            rotation=90 if max(map(len, matrix.labels)) > 3 else 0,
        )
        axes.set_yticks(range(classes), [_cut(label) for label in matrix.labels])
    else:
        _draw_dots(axes, matrix, shares)
    axes.set_xlim(-0.5, classes - 0.5)
    axes.set_ylim(classes - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.set_xlabel("recognised as")
    axes.set_ylabel("true class")
    axes.grid(visible=False)
    images = sum(map(sum, matrix.counts))
    right = sum(row[number] for number, row in enumerate(matrix.counts))
    most = (
        f" Most often confused: {matrix.confused[0].truth} taken for {matrix.confused[0].recognised}."
        if matrix.confused
        else ""
    )
    description = f"{percent(right / images if images else None)} of {images:,} test images recognised.{most}"
    svg = svg_text(figure, name="confusion", title="Confusion matrix", description=description)
    return Drawn(name="confusion", title="Confusion matrix", description=description, svg=svg)


def _draw_cells(axes: Axes, matrix: ConfusionMatrix, shares: Sequence[Sequence[float]]) -> None:
    from matplotlib.patches import Rectangle

    for row, counts in enumerate(matrix.counts):
        for column, count in enumerate(counts):
            colour = SERIES[0] if row == column else SERIES[1]
            patch = Rectangle(
                (column - 0.5, row - 0.5),
                1,
                1,
                facecolor=colour,
                alpha=0.55 * shares[row][column] ** 0.5,
                edgecolor="none",
            )
            if count:
                axes.add_patch(patch)
                axes.text(column, row, f"{count}", ha="center", va="center", color=INK, fontsize=8)
    for edge in range(len(matrix.labels) + 1):
        axes.plot([-0.5, len(matrix.labels) - 0.5], [edge - 0.5] * 2, color=LINE, linewidth=0.5)
        axes.plot([edge - 0.5] * 2, [-0.5, len(matrix.labels) - 0.5], color=LINE, linewidth=0.5)


def _draw_dots(axes: Axes, matrix: ConfusionMatrix, shares: Sequence[Sequence[float]]) -> None:
    """Draw a dot for each pair of classes that occurs, in three sizes by its share of the true class."""
    found = sorted(
        (
            (shares[row][column], row, column)
            for row, counts in enumerate(matrix.counts)
            for column, count in enumerate(counts)
            if count
        ),
        reverse=True,
    )[:MOST_DOTS]
    for is_right, number in ((True, 0), (False, 1)):
        for least, most, size in ((0.5, 1.1, 3.2), (0.1, 0.5, 2.2), (0.0, 0.1, 1.2)):
            chosen = [
                (column, row) for share, row, column in found if (row == column) == is_right and least <= share < most
            ]
            xs, ys = [x for x, _ in chosen], [y for _, y in chosen]
            axes.plot(xs, ys, linestyle="", marker="s", markersize=size, color=SERIES[number], markeredgewidth=0)


def _cut(name: str, most: int = 16) -> str:
    return name if len(name) <= most else f"{name[: most - 3]}..."
