"""The figures of a report, each an SVG with a title, a description, and the numbers that it shows beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.report.model import CHECKPOINT, FAULT, RESUMED, STRAGGLER, ConfusionMatrix, Curves, RunReport, Timeline
from cluster.report.palette import DASHES, MARKERS
from cluster.report.svg import FAINT, INK, LINE, SERIES, WIDTH_IN, drawing, new_figure, svg_text
from cluster.report.timeline import PHASES
from cluster.report.wording import listed, percent, time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_WITH_MARKS: Final = 30
"""Points of a line that have a mark each; a longer one is a line alone."""
MOST_NODES: Final = 24
"""Nodes that a timeline shows, each on a line."""
MOST_DOTS: Final = 2000
"""Pairs of classes of a larger matrix that are drawn: those with the largest shares."""
MOST_WITH_NUMBERS: Final = 20
"""Classes up to which each cell of the confusion matrix holds its count."""

EPOCH: Final = "epoch"
TIMELINE: Final = "Timeline"

Point = tuple[float, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """A figure, drawn."""

    name: str
    title: str
    description: str
    """What it shows in a sentence, for those who do not see it."""
    svg: str
    narrow_svg: str = ""
    """The same for a narrow screen, where the figure takes the width of the page."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a plot."""

    label: str
    points: Sequence[Point]
    style: int = 0
    """Number of its colour, dashes and marks."""
    faint: bool = False
    """Thin and pale: measured often, beside a line that sums it up."""
    spread: Sequence[float] = ()
    """Half the height of a band around each point; nothing for none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """Lines over one axis."""

    name: str
    title: str
    description: str
    lines: Sequence[Line]
    x_label: str
    percent: bool = False
    log: bool = False
    steps: bool = False
    """Whether a value holds until the next one."""
    from_zero: bool = False


def run_figures(report: RunReport) -> tuple[Drawn, ...]:
    """Draw what the report of one run has."""
    with drawing():
        plots = [draw_plot(plot) for plot in curve_plots(report.curves)]
        timeline = [draw_timeline(report.timeline)] if report.timeline.phases else []
        confusion = [draw_confusion(report.confusion)] if report.confusion else []
    return (*plots, *timeline, *confusion)


def curve_plots(curves: Curves) -> list[Plot]:
    """Return the plots of a run's curves that have points."""
    epochs, steps, split = curves.epochs, curves.steps, curves.evaluated

    def by_epoch(value: Callable[[Any], float | None]) -> list[Point]:
        return [(point.epoch, found) for point in epochs if (found := value(point)) is not None]

    def by_step(value: Callable[[Any], float | None]) -> list[Point]:
        return [(point.epoch, found) for point in steps if (found := value(point)) is not None]

    def by_time(value: Callable[[Any], float | None]) -> list[Point]:
        return [(point.at_s, found) for point in epochs if (found := value(point)) is not None]

    loss = [
        Line(label="steps", points=by_step(lambda p: p.loss), style=0, faint=True),
        Line(label="training", points=by_epoch(lambda p: p.train_loss), style=0),
        Line(label=split, points=by_epoch(lambda p: p.test_loss), style=1),
    ]
    accuracy = [
        Line(label="steps", points=by_step(lambda p: p.accuracy), style=0, faint=True),
        Line(label="training", points=by_epoch(lambda p: p.train_accuracy), style=0),
        Line(label=split, points=by_epoch(lambda p: p.test_accuracy), style=1),
    ]
    over_time = [
        Line(label="training", points=by_time(lambda p: p.train_accuracy), style=0),
        Line(label=split, points=by_time(lambda p: p.test_accuracy), style=1),
    ]
    rate = [Line(label="learning rate", points=by_step(lambda p: p.learning_rate), style=2)]
    speed = [Line(label="images/s per node", points=by_epoch(lambda p: p.images_per_s_per_node), style=3)]
    batch = [Line(label="global batch", points=by_epoch(lambda p: p.global_batch), style=4)]
    size = [Line(label="image size, pixels", points=by_epoch(lambda p: p.image_size), style=5)]
    plots = [
        Plot(
            name="loss",
            title="Loss",
            description=_range("Loss", loss[1:], "{:.4g}"),
            lines=loss,
            x_label=EPOCH,
            log=_spans(loss),
        ),
        Plot(
            name="accuracy",
            title="Accuracy",
            description=_range("Accuracy", accuracy[1:], "{:.2%}"),
            lines=accuracy,
            x_label=EPOCH,
            percent=True,
        ),
        Plot(
            name="accuracy-over-time",
            title="Accuracy over time",
            description=_range("Accuracy over the time since the run's start", over_time, "{:.2%}"),
            lines=over_time,
            x_label="time since the start",
            percent=True,
        ),
        Plot(
            name="images-per-second",
            title="Images/s per node",
            description=_range("Training images per second and node", speed, "{:,.0f}"),
            lines=speed,
            x_label=EPOCH,
            from_zero=True,
        ),
        Plot(
            name="learning-rate",
            title="Learning rate",
            description=_range("Learning rate", rate, "{:.4g}"),
            lines=rate,
            x_label=EPOCH,
            from_zero=True,
        ),
        Plot(
            name="batch",
            title="Global batch",
            description=_range("Images of a step over all ranks", batch, "{:,.0f}"),
            lines=batch,
            x_label=EPOCH,
            steps=True,
            from_zero=True,
        ),
        Plot(
            name="image-size",
            title="Image size",
            description=_range("Height of the training images in pixels", size, "{:.0f}"),
            lines=size,
            x_label=EPOCH,
            steps=True,
            from_zero=True,
        ),
    ]
    # What stays as it was is told in a sentence: `constants`.
    return [plot for plot in plots if any(line.points for line in plot.lines) and not _is_constant(plot)]


def constants(curves: Curves) -> str:
    """Return what did not change over the epochs, as a sentence; nothing where all of it did, or is unknown."""
    batches = {point.global_batch for point in curves.epochs}
    sizes = {point.image_size for point in curves.epochs}
    words = [
        form.format(next(iter(values)))
        for form, values in (("a global batch of {:,} images", batches), ("images of {} pixels", sizes))
        if len(values) == 1 and None not in values
    ]
    return f"In every epoch {listed(words)}." if words else ""


def _is_constant(plot: Plot) -> bool:
    return plot.steps and len({value for line in plot.lines for _, value in line.points}) == 1


def _spans(lines: Sequence[Line]) -> bool:
    """Return whether values above zero span so much that small ones show on a logarithmic axis alone."""
    values = [value for line in lines for _, value in line.points]
    return bool(values) and min(values) > 0 and max(values) > 20 * min(values)


def _range(what: str, lines: Sequence[Line], form: str) -> str:
    """Say where each line begins and ends."""
    said = [
        f"{line.label} from {form.format(line.points[0][1])} to {form.format(line.points[-1][1])}"
        for line in lines
        if line.points
    ]
    return f"{what}: {'; '.join(said)}." if said else f"{what}."


def draw_plot(plot: Plot) -> Drawn:
    """Draw lines over one axis."""
    figure = new_figure()
    axes = figure.add_subplot()
    lines = [line for line in plot.lines if line.points]
    for line in lines:
        _draw_line(axes, line, dashes=DASHES[line.style % len(DASHES)] if len(lines) > 1 else "-", steps=plot.steps)
    axes.set_xlabel(plot.x_label)
    if plot.log:
        from matplotlib.ticker import LogLocator, NullFormatter

        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    if plot.x_label == EPOCH:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if plot.percent:
        from matplotlib.ticker import PercentFormatter

        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if plot.x_label.startswith("time"):
        axes.xaxis.set_major_formatter(lambda seconds, _: time_text(seconds) if seconds else "0")
    if plot.from_zero:
        axes.set_ylim(bottom=0, top=1.12 * max(value for line in lines for _, value in line.points) or 1)
    if len(lines) > 1:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    svg = svg_text(figure, name=plot.name, title=plot.title, description=plot.description)
    return Drawn(name=plot.name, title=plot.title, description=plot.description, svg=svg)


def _draw_line(axes: Axes, line: Line, *, dashes: Any, steps: bool) -> None:
    xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
    number = line.style % len(SERIES)
    marked = len(xs) <= MOST_WITH_MARKS and not line.faint
    axes.plot(
        xs,
        ys,
        color=SERIES[number],
        linestyle="-" if line.faint else dashes,
        linewidth=0.8 if line.faint else 1.6,
        alpha=0.5 if line.faint else 1.0,
        marker=MARKERS[number] if marked else "",
        markersize=3.2,
        drawstyle="steps-mid" if steps and len(xs) > 1 else "default",
        label=line.label,
    )
    if line.spread:
        low, high = ([y + sign * half for y, half in zip(ys, line.spread, strict=True)] for sign in (-1, 1))
        axes.fill_between(xs, low, high, color=SERIES[number], alpha=0.18, linewidth=0)


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
