"""Plots of a sweep over each parameter: every run, and mean and standard deviation for each of its values."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import TYPE_CHECKING, Final

from cluster.plots.style import DASHES, MARKERS, SERIES, Drawn, drawing, label_decades, new_figure
from cluster.report.run_report import FIGURES, SECONDS, SPEED_PER_NODE, TEST_ACCURACY, VALIDATION_ACCURACY
from cluster.report.shown_values import time_text
from cluster.report.sweep import SweepReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACCURACIES: Final = (TEST_ACCURACY, VALIDATION_ACCURACY)
MAX_SERIES: Final = 6
"""If the other parameters have more combinations, all runs are in one series."""
MAX_LABEL: Final = 24
MAX_TICKS: Final = 12
LOG_FROM: Final = 50
"""Minimum ratio of the largest to the smallest value for a logarithmic axis."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points:
    """The runs' values of one figure, such as accuracy, by the value of one parameter."""

    label: str
    """The values of the other parameters."""
    by_value: dict[str, list[float]]


def series_of(report: SweepReport, parameter: str, key: str) -> list[Points]:
    """Return the values of a figure in the runs that succeeded, by the value of a parameter.

    There is one series for each combination of the other parameters, or one with all runs if there would be more than
    MAX_SERIES. `key` is a key of FIGURES. Runs without this figure are left out.
    """
    found = dict[str, dict[str, list[float]]]()
    runs = zip(report.succeeded.runs, report.succeeded.headlines, strict=True)
    for run, headlines in sorted(runs, key=lambda pair: pair[0].trial.number):
        values = dict(run.trial.parameters)
        value = next((each.value for each in headlines if each.key == key), None)
        if value is not None and parameter in values:
            others = ", ".join(f"{name}={text}" for name, text in values.items() if name != parameter)
            found.setdefault(others, {}).setdefault(values[parameter], []).append(value)
    if len(found) <= MAX_SERIES:
        return [Points(label=label, by_value=by_value) for label, by_value in found.items()]
    together = dict[str, list[float]]()
    for by_value in found.values():
        for text, numbers in by_value.items():
            together.setdefault(text, []).extend(numbers)
    return [Points(label="", by_value=together)]


def positions(values: list[str]) -> tuple[dict[str, float], bool]:
    """Return the position of each value on the axis, and whether all values are numbers.

    Numbers are their own positions. If one value is not a finite number, all are placed at equal distances.
    """
    try:
        numbers = {value: float(value) for value in values}
    except ValueError:
        numbers = {}
    if numbers and all(map(math.isfinite, numbers.values())):
        return numbers, True
    return {value: float(index) for index, value in enumerate(values)}, False


def sweep_plots(report: SweepReport) -> list[Drawn]:
    """Draw accuracy and time over each parameter with several values; over `nodes`, also the speed per node."""
    found = []
    for index, parameter in enumerate(report.parameters):
        for key in (*ACCURACIES, SECONDS, *((SPEED_PER_NODE,) if parameter == "nodes" else ())):
            series = series_of(report, parameter, key)
            if len({value for points in series for value in points.by_value}) > 1:
                found.append(_draw(series, parameter, key, name=f"sweep-{index}-{key}"))
    return found


def _draw(series: list[Points], parameter: str, key: str, *, name: str) -> Drawn:
    """Draw the values of the figure `key`, such as SECONDS, over one parameter. The text alternative lists the means.

    `name` must be unique on the page.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

    title, form = FIGURES[key]
    values = list(dict.fromkeys(value for points in series for value in points.by_value))
    places, is_numeric = positions(values)
    with drawing():
        figure = new_figure()
        axes = figure.add_subplot()
        for number, points in enumerate(series):
            _draw_points(axes, points, places, number, with_line=len(values) <= MAX_TICKS)
        low, high = min(places.values()), max(places.values())
        if is_numeric and low > 0 and high >= LOG_FROM * low:
            label_decades(axes, "x", "{:g}".format)
        elif len(values) <= MAX_TICKS:
            axes.set_xticks([places[value] for value in values], labels=[_shortened(value) for value in values])
        axes.set_xlabel(parameter)
        if key in ACCURACIES:
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        else:
            axes.set_ylim(bottom=0)
            if key == SECONDS:
                axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 1.8, 3.6, 6, 9, 10]))  # whole minutes and hours
            form_axis = time_text if key == SECONDS else "{:,.0f}".format
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: form_axis(value) if value else "0"))
        if len(series) > 1:
            figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
        means = [
            f"{_shortened(value)}: {form(statistics.fmean(numbers))}"
            for points in series
            for value, numbers in list(points.by_value.items())[:MAX_TICKS]
        ]
        heading = f"{title} by {parameter}"
        return Drawn.of(figure, name=name, title=heading, description=f"{heading}. Means: {'; '.join(means)}.")


def _draw_points(axes: Axes, points: Points, places: dict[str, float], number: int, *, with_line: bool) -> None:
    """Draw each run as a faint mark, and the means with bars of one standard deviation in both directions.

    `places` are the positions of the values, `number` chooses color and marks. `with_line` connects the means.
    """
    color, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
    ordered = sorted(points.by_value.items(), key=lambda pair: places[pair[0]])
    every = [(places[value], each) for value, numbers in ordered for each in numbers]
    axes.plot(*zip(*every, strict=True), marker, color=color, alpha=0.45, markersize=3.5)
    axes.errorbar(
        [places[value] for value, _ in ordered],
        [statistics.fmean(numbers) for _, numbers in ordered],
        yerr=[statistics.stdev(numbers) if len(numbers) > 1 else 0.0 for _, numbers in ordered],
        color=color,
        linestyle=DASHES[number % len(DASHES)] if with_line else "",
        linewidth=1.2,
        marker=marker if with_line else "",
        markersize=5,
        capsize=3,
        label=_shortened(points.label, 2 * MAX_LABEL),
    )


def _shortened(text: str, most: int = MAX_LABEL) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
