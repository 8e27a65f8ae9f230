"""Lines over one axis, as a report draws them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.report.palette import DASHES, MARKERS
from cluster.report.svg import SERIES, Drawn, new_figure, svg_text
from cluster.report.wording import time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_WITH_MARKS: Final = 30
"""Points of a line that have a mark each; a longer one is a line alone."""
EPOCH: Final = "epoch"

Point = tuple[float, float]


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
