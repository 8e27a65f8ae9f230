"""The picture of a benchmark: images/s and efficiency over nodes, bandwidth and time over size, input and storage."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from cluster.bench.measurements import Bench, Measurement
from cluster.plots.style import DASHES, FAINT, MARKERS, SERIES, drawing, label_decades, new_figure
from payload.settings.bench import ALLREDUCE, INPUT, PLACES, READ, TRAINING, WRITE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEEDING: Final = (INPUT, WRITE, READ)
Value = Callable[[Measurement], float]
Lines = dict[str, list[Measurement]]
"""Measurements by the label of their line."""


def draw_bench(bench: Bench) -> Figure:
    """Draw a benchmark's medians, with the fastest and the slowest round as error bars, and return the figure.

    There is a row of two plots each for training, for allreduces, and for input and storage, if there are measurements.
    Raises DeepcdkError if Matplotlib is not installed.
    """
    drawn = (((TRAINING,), _draw_training), ((ALLREDUCE,), _draw_allreduce), (FEEDING, _draw_feeding))
    rows = [(bench.of_kind(*kinds), draw) for kinds, draw in drawn if bench.of_kind(*kinds)]
    with drawing():
        figure = new_figure(9.0, 3.6 * len(rows))
        parts = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
        for part, (measured, draw) in zip(parts, rows, strict=True):
            panels = part.subplots(1, 2)
            draw(panels, bench)
            in_bytes = measured[0].cell.kind == ALLREDUCE
            ticks = sorted({_position(each) for each in measured})
            for axes in panels:
                axes.set_xscale("log", base=2)
                axes.set_xticks(ticks, labels=[_binary(tick) if in_bytes else str(tick) for tick in ticks])
                axes.set_xlabel("size of the tensor, bytes" if in_bytes else "nodes")
            labels = {label: handle for axes in panels for handle, label in _legend(axes)}
            part.legend(labels.values(), labels.keys(), loc="outside lower left", ncols=4)
    return figure


def _draw_training(panels: Sequence[Axes], bench: Bench) -> None:
    """Draw images/s in the first panel and efficiency in the second, over the number of nodes.

    Dotted lines show what linear scaling would give.
    """
    rates, shares = panels
    lines: Lines = {}
    for each in bench.of_kind(TRAINING):
        lines.setdefault(f"{each.cell.program}, batch {each.cell.batch_per_rank}", []).append(each)
    _draw_lines(rates, "images/s of all ranks", lines, lambda m: m.images_per_s)
    for found in lines.values():
        linear = [found[0].images_per_s * m.cell.nodes / found[0].cell.nodes for m in found]
        rates.plot([m.cell.nodes for m in found], linear, color=FAINT, lw=0.8, ls=":", label="linear")
    _draw_lines(shares, "efficiency against linear, %", lines, lambda m: 100 * (bench.efficiency(m) or 0.0))
    shares.axhline(100, color=FAINT, lw=0.8, ls=":")
    shares.set_ylim(bottom=0)
    label_decades(rates, "y", "{:,.10g}".format)


def _draw_allreduce(panels: Sequence[Axes], bench: Bench) -> None:
    """Draw the bandwidth of allreduces in the first panel and their time in the second, over the tensor's size."""
    rates, times = panels
    lines: Lines = {}
    for each in bench.of_kind(ALLREDUCE):
        lines.setdefault(f"allreduce, {each.cell.nodes} nodes", []).append(each)
    _draw_lines(rates, "bus bandwidth, GB/s", lines, lambda m: m.bus_bytes_per_s / 1e9)
    _draw_lines(times, "time, us", lines, lambda m: m.median_s * 1e6)
    label_decades(times, "y", "{:,.10g}".format)


def _draw_feeding(panels: Sequence[Axes], bench: Bench) -> None:
    """Draw the speed of the input pipeline in the first panel and of the storage in the second, over the number of
    nodes.
    """
    images, files = panels
    inputs = {f"input, {each.cell.image_size} pixels": list(bench.of_kind(INPUT)) for each in bench.of_kind(INPUT)}
    stored = {
        f"{kind}, {place}": [m for m in bench.of_kind(kind) if m.cell.place == place]
        for place in PLACES
        for kind in (WRITE, READ)
    }
    _draw_lines(images, "images/s of all ranks", inputs, lambda m: m.images_per_s)
    _draw_lines(files, "files, MB/s of all nodes", stored, lambda m: m.file_bytes_per_s / 1e6, first=1)
    for axes in panels:
        axes.set_ylim(bottom=0)


def _draw_lines(axes: Axes, title: str, lines: Lines, value: Value, first: int = 0) -> None:
    """Draw a line with error bars for each label in `lines`. `value` returns the number to draw for a measurement.

    `first` is the number of the first line's color, marks and dashes.
    """
    axes.set_title(title, loc="left", fontsize=10)
    for number, (label, found) in enumerate(lines.items(), first):
        if not found:
            continue
        middle = [value(m) for m in found]
        ends = [sorted(value(dataclasses.replace(m, seconds=(s(m.seconds),))) for s in (min, max)) for m in found]
        lower = [max(0.0, v - low) for v, (low, _) in zip(middle, ends, strict=True)]
        upper = [max(0.0, high - v) for v, (_, high) in zip(middle, ends, strict=True)]
        axes.errorbar(
            [_position(m) for m in found],
            middle,
            yerr=[lower, upper],
            color=SERIES[number % len(SERIES)],
            marker=MARKERS[number % len(MARKERS)],
            ls=DASHES[number % len(DASHES)],
            ms=5,
            lw=1.2,
            elinewidth=1,
            capsize=2,
            label=label,
        )


def _position(measurement: Measurement) -> int:
    cell = measurement.cell
    return cell.message_bytes if cell.kind == ALLREDUCE else cell.nodes


def _legend(axes: Axes) -> Iterable[tuple[Artist, str]]:
    return zip(*axes.get_legend_handles_labels(), strict=True)


def _binary(size: int) -> str:
    """Return a size in bytes in its shortest form: 1 Ki for 1,024. Sizes that are no multiple of 1,024
    are written out.
    """
    for power, unit in ((20, " Mi"), (10, " Ki")):
        if size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return f"{size:,}"
