"""Time and cost of the candidates as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.errors import DeepcdkError, UsageError
from cluster.planner.candidates import Candidate
from cluster.report.palette import LIGHT, MARKERS
from cluster.terminal.units import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".svg")
SETTINGS: Final[Any] = {
    "font.size": 9.0,
    "text.parse_math": False,  # a dollar is no formula
    "text.color": LIGHT.ink,
    "axes.edgecolor": LIGHT.line,
    "axes.labelcolor": LIGHT.ink,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LIGHT.line,
    "grid.linewidth": 0.6,
    "xtick.color": LIGHT.faint,
    "ytick.color": LIGHT.faint,
    "legend.frameon": False,
    "svg.hashsalt": "deepcdk",
}
"""Of matplotlib, for a picture that stands by itself on white."""


def check_path(text: str) -> Path:
    """Return the file to draw to. Raises UsageError for one that is neither PNG nor SVG."""
    path = Path(text).expanduser()
    if path.suffix not in SUFFIXES:
        raise UsageError("--plot", text, f"must end with {' or '.join(SUFFIXES)}")
    return path


def draw_candidates(candidates: Sequence[Candidate], chosen: Candidate | None, title: str) -> Figure:
    """Draw cost over time, a line by instance type, each candidate with its range and number of nodes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        figure = Figure(figsize=(7.0, 4.4), layout="constrained")
        axes = figure.add_subplot()
        for number, kind in enumerate(dict.fromkeys(each.instance_type for each in candidates)):
            rows = sorted((c for c in candidates if c.instance_type == kind and c.usd), key=lambda each: each.nodes)
            _draw_type(axes, rows, kind, number, chosen)
        if chosen and chosen.usd:
            point = ([chosen.seconds.value / 60], [chosen.usd.value])
            axes.plot(*point, "o", ms=15, mfc="none", mec=LIGHT.ink, mew=1.4, label="chosen", zorder=5)
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis, form in ((axes.xaxis, _minutes), (axes.yaxis, _dollars)):
            _label_decades(axis, form)
        axes.set_xlabel("time, h:min:s; numbers are nodes, bold where nothing is both quicker and cheaper")
        axes.set_ylabel("cost on demand, USD")
        axes.set_title(title, loc="left", fontsize=10)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=4)
    return figure


def _draw_type(axes: Any, rows: Sequence[Candidate], kind: str, number: int, chosen: Candidate | None) -> None:
    if not rows:
        return
    colour = LIGHT.series[number % len(LIGHT.series)]
    times = [each.seconds for each in rows]
    costs = [each.usd for each in rows if each.usd]
    xs, ys = [t.value / 60 for t in times], [c.value for c in costs]
    spread = [[(t.value - t.low) / 60 for t in times], [(t.high - t.value) / 60 for t in times]]
    axes.errorbar(xs, ys, xerr=spread, fmt="none", ecolor=colour, alpha=0.35, elinewidth=1)
    marker = MARKERS[number % len(MARKERS)]
    axes.plot(xs, ys, color=colour, marker=marker, ms=5, lw=1.2, label=kind)
    for each, x, y in zip(rows, xs, ys, strict=True):
        weight = "bold" if each.on_frontier else "normal"
        # Lines fall from the left to the right, so that the other free corner is where the chosen one's circle is not.
        place, side = ((-8, -15), "right") if each is chosen else ((4, 5), "left")
        text = axes.annotate(str(each.nodes), (x, y), xytext=place, textcoords="offset points", ha=side)
        text.set(color=colour, weight=weight)


def _label_decades(axis: Any, form: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(form))
    axis.set_minor_formatter(NullFormatter())


def _minutes(value: float, _: object) -> str:
    return duration(value * 60)


def _dollars(value: float, _: object) -> str:
    return f"${value:g}"


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG. Raises DeepcdkError where that fails."""
    from matplotlib import rc_context

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context(SETTINGS):
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {})
    except OSError as error:
        raise DeepcdkError(f"cannot write {path} ({error.strerror})") from None
