"""Time and cost of the candidates of a plan as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.errors import UsageError
from cluster.planner.candidates import Candidate
from cluster.plots.style import INK, MARKERS, SERIES, check_installed, drawing, label_decades, new_figure
from cluster.terminal.units import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".svg")


def check_path(text: str) -> Path:
    """Return the value of --plot as a path. Nothing is written.

    Raises UsageError for another ending than .png or .svg, and DeepcdkError if Matplotlib is not installed.
    """
    path = Path(text).expanduser()
    if path.suffix not in SUFFIXES:
        raise UsageError("--plot", text, f"must end with {' or '.join(SUFFIXES)}")
    check_installed()
    return path


def draw_candidates(candidates: Sequence[Candidate], chosen: Candidate | None, title: str) -> Figure:
    """Draw cost over time, both logarithmic: one line per instance type, each candidate with its range of time.

    The number of nodes is beside each candidate, bold on the frontier. Candidates without a price are left out. The
    chosen one has a circle.
    """
    with drawing():
        figure = new_figure(7.0, 4.4)
        axes = figure.add_subplot()
        for number, kind in enumerate(dict.fromkeys(each.instance_type for each in candidates)):
            rows = sorted((c for c in candidates if c.instance_type == kind and c.usd), key=lambda each: each.nodes)
            if rows:
                _draw_type(axes, rows, kind, number, chosen)
        if chosen and chosen.usd:
            point = ([chosen.seconds.value / 60], [chosen.usd.value])
            axes.plot(*point, "o", ms=15, mfc="none", mec=INK, mew=1.4, label="chosen", zorder=5)
        label_decades(axes, "x", lambda minutes: duration(60 * minutes))
        label_decades(axes, "y", "${:g}".format)
        axes.set_xlabel("time, h:min:s; numbers are nodes, bold if nothing is both faster and cheaper")
        axes.set_ylabel("on-demand cost, USD")
        axes.set_title(title, loc="left", fontsize=10)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=4)
    return figure


def _draw_type(axes: Axes, rows: Sequence[Candidate], kind: str, number: int, chosen: Candidate | None) -> None:
    """Draw the candidates of the instance type `kind`: cost over minutes, with the range of the time, and the node
    count.

    `rows` are the candidates. `number` chooses color and marks. The label of `chosen` leaves space for a circle.
    """
    color, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
    times = [each.seconds for each in rows]
    xs, ys = [time.value / 60 for time in times], [each.usd.value for each in rows if each.usd]
    spread = [[(t.value - t.low) / 60 for t in times], [(t.high - t.value) / 60 for t in times]]
    axes.errorbar(xs, ys, xerr=spread, fmt="none", ecolor=color, alpha=0.35, elinewidth=1)
    axes.plot(xs, ys, color=color, marker=marker, ms=5, lw=1.2, label=kind)
    for each, x, y in zip(rows, xs, ys, strict=True):
        # Lines fall from left to right, so the circle of the chosen candidate leaves the lower left corner free.
        place, side = ((-8, -15), "right") if each is chosen else ((4, 5), "left")
        text = axes.annotate(str(each.nodes), (x, y), xytext=place, textcoords="offset points", ha=side)
        text.set(color=color, weight="bold" if each.on_frontier else "normal")
