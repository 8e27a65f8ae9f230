"""The figures of a benchmark as a picture: images/s and efficiency over nodes, bus bandwidth and time over size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.bench.measurements import Bench, Measurement
from cluster.planner.plot import SETTINGS
from cluster.report.palette import DASHES, LIGHT, MARKERS
from payload.settings.bench import ALLREDUCE, INPUT, PLACES, READ, TRAINING, WRITE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEEDING: Final = (INPUT, WRITE, READ)
Value = Callable[[Measurement, float], float]
"""The figure of a measurement that takes so many seconds."""


def draw_bench(bench: Bench) -> Figure:
    """Draw what was measured: medians, with the quickest and the slowest round as bars."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    drawn = (((TRAINING,), _draw_training), ((ALLREDUCE,), _draw_allreduce), (FEEDING, _draw_feeding))
    rows = [draw for kinds, draw in drawn if bench.of_kind(*kinds)]
    with rc_context(SETTINGS):
        figure = Figure(figsize=(9.0, 3.6 * len(rows)), layout="constrained")
        parts = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
        for part, draw in zip(parts, rows, strict=True):
            draw(part, bench)
    return figure


def _draw_training(figure: Any, bench: Bench) -> None:
    rates, shares = figure.subplots(1, 2)
    measured = bench.of_kind(TRAINING)
    names = list(dict.fromkeys((m.cell.program, m.cell.batch_per_rank) for m in measured))
    for number, (program, batch) in enumerate(names):
        found = [m for m in measured if (m.cell.program, m.cell.batch_per_rank) == (program, batch)]
        nodes = [m.cell.nodes for m in found]
        label = f"{program}, batch {batch}"
        _line(rates, nodes, found, lambda m, s: m.cell.batch_per_rank * m.ranks / s, number, label)
        linear = [found[0].images_per_s * n / nodes[0] for n in nodes]
        rates.plot(nodes, linear, color=LIGHT.faint, lw=0.8, ls=":", label="linear" if not number else None)
        _line(shares, nodes, found, lambda m, s: 100 * (bench.efficiency(m) or 0.0) * m.median_s / s, number, label)
    shares.axhline(100, color=LIGHT.faint, lw=0.8, ls=":")
    shares.set_ylim(bottom=0)
    _in_decades(rates.yaxis)
    every = sorted({m.cell.nodes for m in bench.of_kind(TRAINING)})
    for axes, what in ((rates, "images/s of all ranks"), (shares, "efficiency against linear, %")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(every, labels=[str(n) for n in every])
        axes.set_xlabel("nodes")
        axes.set_title(what, loc="left", fontsize=10)
    figure.legend(*rates.get_legend_handles_labels(), loc="outside lower left", ncols=4)


def _draw_allreduce(figure: Any, bench: Bench) -> None:
    widths, times = figure.subplots(1, 2)
    for number, nodes in enumerate(dict.fromkeys(m.cell.nodes for m in bench.of_kind(ALLREDUCE))):
        # In the order of their cells, by size.
        found = [m for m in bench.of_kind(ALLREDUCE) if m.cell.nodes == nodes]
        sizes = [m.cell.message_bytes for m in found]
        label = f"allreduce, {nodes} nodes"
        _line(widths, sizes, found, lambda m, s: m.bus_bytes_per_s * m.median_s / s / 1e9, number, label)
        _line(times, sizes, found, lambda m, s: s * 1e6, number, label)
    _in_decades(times.yaxis)
    every = sorted({m.cell.message_bytes for m in bench.of_kind(ALLREDUCE)})
    for axes, what in ((widths, "bus bandwidth, GB/s"), (times, "time, us")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(every, labels=[_binary(size) for size in every])
        axes.set_xlabel("size of the tensor, bytes")
        axes.set_title(what, loc="left", fontsize=10)
    figure.legend(*widths.get_legend_handles_labels(), loc="outside lower left", ncols=4)


def _draw_feeding(figure: Any, bench: Bench) -> None:
    """Draw what feeds the training: images of the input pipeline, and files."""
    images, files = figure.subplots(1, 2)
    if found := list(bench.of_kind(INPUT)):
        label = f"input, {found[0].cell.image_size} pixels"
        _line(images, [m.cell.nodes for m in found], found, lambda m, s: m.images_per_s * m.median_s / s, 0, label)
    for number, (place, kind) in enumerate((place, kind) for place in PLACES for kind in (WRITE, READ)):
        if found := [m for m in bench.of_kind(kind) if m.cell.place == place]:
            nodes = [m.cell.nodes for m in found]
            label = f"{kind}, {place}"
            _line(files, nodes, found, lambda m, s: m.file_bytes_per_s * m.median_s / s / 1e6, number + 1, label)
    every = sorted({m.cell.nodes for m in bench.of_kind(*FEEDING)})
    for axes, what in ((images, "images/s of all ranks"), (files, "files, MB/s of all nodes")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(every, labels=[str(n) for n in every])
        axes.set_xlabel("nodes")
        axes.set_ylim(bottom=0)
        axes.set_title(what, loc="left", fontsize=10)
    handles, labels = images.get_legend_handles_labels()
    others, more = files.get_legend_handles_labels()
    figure.legend([*handles, *others], [*labels, *more], loc="outside lower left", ncols=5)


def _binary(size: int) -> str:
    """Return a size as short as it can be: 1 Ki for 1,024."""
    for power, unit in ((20, " Mi"), (10, " Ki")):
        if size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return f"{size:,}"


def _in_decades(axis: Any) -> None:
    """Make a vertical axis logarithmic, with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.axes.set_yscale("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def _line(axes: Any, xs: Sequence[int], found: Sequence[Measurement], value: Value, number: int, label: str) -> None:
    middle = [value(m, m.median_s) for m in found]
    ends = [sorted((value(m, min(m.seconds)), value(m, max(m.seconds)))) for m in found]
    bars = [
        [max(0.0, v - low) for v, (low, _) in zip(middle, ends, strict=True)],
        [max(0.0, high - v) for v, (_, high) in zip(middle, ends, strict=True)],
    ]
    colour = LIGHT.series[number % len(LIGHT.series)]
    axes.errorbar(
        xs,
        middle,
        yerr=bars,
        color=colour,
        marker=MARKERS[number % len(MARKERS)],
        ls=DASHES[number % len(DASHES)],
        ms=5,
        lw=1.2,
        elinewidth=1,
        capsize=2,
        label=label,
    )
