"""Curves of one run, and of several runs in the same plots."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.plots.style import DASHES, MARKERS, SERIES, Drawn, drawing, label_decades, new_figure
from cluster.report.comparison import Comparison
from cluster.report.curves import Curves, EpochPoint, StepPoint
from cluster.report.shown_values import time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_MARKS: Final = 30
"""Maximum number of points in a line with marks."""
MAX_SHORT_LABEL: Final = 12
"""Maximum length of labels for a legend with three columns. Two columns have room for all labels of a comparison."""
LOG_FROM: Final = 20
"""Minimum ratio of the largest to the smallest loss for a logarithmic axis."""
PERCENT, COUNT, DIGITS = "{:.2%}", "{:,.0f}", "{:.4g}"

Point = tuple[float, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a plot."""

    label: str
    points: Sequence[Point]
    style: int = 0
    """Number of its color, dashes and marks."""
    faint: bool = False
    spread: Sequence[float] = ()
    """Half the height of the band around each point, if there is a band."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """Lines over epochs or over time."""

    name: str
    title: str
    form: str
    """Format of a value. PERCENT is also used for the axis."""
    lines: Sequence[Line]
    over_time: bool = False
    may_be_log: bool = False
    from_zero: bool = False
    is_stepped: bool = False
    """Whether a value holds until the next one. Such a plot is left out if it never changes."""

    @property
    def description(self) -> str:
        """Return the first and last value of each line as a sentence. Faint lines are left out."""
        ends = [
            f"{line.label} from {self.form.format(line.points[0][1])} to {self.form.format(line.points[-1][1])}"
            for line in self.lines
            if line.points and not line.faint
        ]
        return f"{self.title}: {'; '.join(ends)}."

    @property
    def is_shown(self) -> bool:
        """Return whether the plot has values to show. A stepped plot must have at least two different values."""
        values = {value for line in self.lines for _, value in line.points}
        return len(values) > 1 if self.is_stepped else bool(values)


def run_plots(curves: Curves) -> list[Plot]:
    """Return the plots of one run: loss, accuracy over epochs and time, speed, learning rate, batch and image size.

    Plots without values are left out. Batch and image size are also left out if they never change.
    """

    def line(label: str, name: str, style: int = 0, *, over_time: bool = False) -> Line:
        return Line(label=label, points=_points(curves.epochs, name, over_time=over_time), style=style)

    def steps(label: str, name: str, style: int = 0, *, faint: bool = True) -> Line:
        return Line(label=label, points=_points(curves.steps, name), style=style, faint=faint)

    split = curves.evaluated
    loss = [steps("steps", "loss"), line("training", "train_loss"), line(split, "evaluation_loss", 1)]
    accuracy = [steps("steps", "accuracy"), line("training", "train_accuracy"), line(split, "evaluation_accuracy", 1)]
    timed = [line("training", "train_accuracy", over_time=True), line(split, "evaluation_accuracy", 1, over_time=True)]
    speed = [line("images/s per node", "images_per_s_per_node", 3)]
    rate = [steps("learning rate", "learning_rate", 2, faint=False)]
    batch, size = [line("global batch", "global_batch", 4)], [line("image size, pixels", "image_size", 5)]
    plots = (
        Plot(name="loss", title="Loss", form=DIGITS, lines=loss, may_be_log=True),
        Plot(name="accuracy", title="Accuracy", form=PERCENT, lines=accuracy),
        Plot(name="accuracy-over-time", title="Accuracy over time", form=PERCENT, lines=timed, over_time=True),
        Plot(name="images-per-second", title="Images/s per node", form=COUNT, lines=speed, from_zero=True),
        Plot(name="learning-rate", title="Learning rate", form=DIGITS, lines=rate, from_zero=True),
        Plot(name="batch", title="Global batch", form=COUNT, lines=batch, from_zero=True, is_stepped=True),
        Plot(name="image-size", title="Image size", form=COUNT, lines=size, from_zero=True, is_stepped=True),
    )
    return [plot for plot in plots if plot.is_shown]


def comparison_plots(comparison: Comparison) -> list[Plot]:
    """Return the plots of several runs: one line per run, or per group of repeats with a band for its spread.

    The learning rate is that of a group's first run. Plots without values are left out.
    """

    def lines(name: str, *, over_time: bool = False) -> list[Line]:
        found = []
        for style, group in enumerate(comparison.repeats):
            known = [(point, spread) for point in group.epochs if (spread := getattr(point, name)) is not None]
            points = [(point.at_s if over_time else point.epoch, spread.mean) for point, spread in known]
            bands = [spread.deviation for _, spread in known if spread.deviation is not None]
            found.append(Line(label=group.name, points=points, style=style, spread=bands))
        return found

    rates = [
        Line(
            label=group.name, style=style, points=_points(comparison.runs[group.runs[0]].curves.steps, "learning_rate")
        )
        for style, group in enumerate(comparison.repeats)
    ]
    timed = lines("evaluation_accuracy", over_time=True)
    speed = lines("images_per_s_per_node")
    plots = (
        Plot(name="accuracy", title="Accuracy after each epoch", form=PERCENT, lines=lines("evaluation_accuracy")),
        Plot(name="accuracy-over-time", title="Accuracy over time", form=PERCENT, lines=timed, over_time=True),
        Plot(name="loss", title="Loss after each epoch", form=DIGITS, lines=lines("evaluation_loss"), may_be_log=True),
        Plot(name="images-per-second", title="Images/s per node", form=COUNT, lines=speed, from_zero=True),
        Plot(name="learning-rate", title="Learning rate", form=DIGITS, lines=rates, from_zero=True),
    )
    return [plot for plot in plots if plot.is_shown]


def _points(points: Sequence[EpochPoint | StepPoint], name: str, *, over_time: bool = False) -> list[Point]:
    return [
        (point.at_s if over_time else point.epoch, value)
        for point in points
        if (value := getattr(point, name)) is not None
    ]


def draw_plot(plot: Plot) -> Drawn:
    """Draw one plot over epochs or time, as SVG, with a legend if it has several lines. The plot must have values.

    The y axis is logarithmic if the plot allows it and the largest value is more than LOG_FROM times the smallest.
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    lines = [line for line in plot.lines if line.points]
    values = [value for line in lines for _, value in line.points]
    with drawing():
        figure = new_figure()
        axes = figure.add_subplot()
        for line in lines:
            _draw_line(axes, line, is_alone=len(lines) == 1, plot=plot)
        if plot.over_time:
            axes.set_xlabel("time since the start")
            axes.xaxis.set_major_formatter(lambda seconds, _: time_text(seconds) if seconds else "0")
        else:
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if plot.may_be_log and min(values) > 0 and max(values) > LOG_FROM * min(values):
            label_decades(axes, "y", "{:g}".format)
        if plot.form == PERCENT:
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        if plot.from_zero:
            axes.set_ylim(bottom=0, top=1.12 * max(values) or 1)
        if len(lines) > 1:
            handles, labels = axes.get_legend_handles_labels()
            columns = 3 if max(map(len, labels)) <= MAX_SHORT_LABEL else 2
            figure.legend(handles, labels, loc="outside upper left", ncols=columns)
        return Drawn.of(figure, name=plot.name, title=plot.title, description=plot.description)


def stroke(style: int) -> tuple[str, Any, str]:
    """Return the color, dashes and marks of the line number `style`. When the colors repeat, dashes and marks are
    different.
    """
    later = style + style // len(SERIES)
    return SERIES[style % len(SERIES)], DASHES[later % len(DASHES)], MARKERS[later % len(MARKERS)]


def _draw_line(axes: Axes, line: Line, *, is_alone: bool, plot: Plot) -> None:
    """Draw a line of a plot, and the band around it if there is one. `is_alone`: the plot has no other line."""
    xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
    color, dashes, marker = stroke(line.style)
    axes.plot(
        xs,
        ys,
        color=color,
        linestyle="-" if line.faint or is_alone else dashes,
        linewidth=0.8 if line.faint else 1.6,
        alpha=0.5 if line.faint else 1.0,
        marker=marker if len(xs) <= MAX_MARKS and not line.faint else "",
        markersize=3.2,
        drawstyle="steps-mid" if plot.is_stepped else "default",
        label=line.label,
    )
    if line.spread:
        low, high = ([y + sign * half for y, half in zip(ys, line.spread, strict=True)] for sign in (-1, 1))
        axes.fill_between(xs, low, high, color=color, alpha=0.18, linewidth=0)
