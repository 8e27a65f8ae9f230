"""The plots of a comparison: a line for each run, or for the mean of repeats with a band of their spread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.report.comparison import Comparison, MeanPoint, Repeats, Spread
from cluster.report.line_plots import EPOCH, Line, Plot, draw_plot
from cluster.report.svg import Drawn, drawing


def comparison_figures(comparison: Comparison) -> tuple[Drawn, ...]:
    """Draw the plots that have points."""
    with drawing():
        return tuple(draw_plot(plot) for plot in comparison_plots(comparison))


def comparison_plots(comparison: Comparison) -> list[Plot]:
    """Return the plots: accuracy over epochs and over time, loss, speed, learning rate."""
    groups = comparison.repeats
    accuracy = [_line(group, lambda point: point.test_accuracy) for group in groups]
    over_time = [_line(group, lambda point: point.test_accuracy, over_time=True) for group in groups]
    loss = [_line(group, lambda point: point.test_loss) for group in groups]
    speed = [_line(group, lambda point: point.images_per_s_per_node) for group in groups]
    rates = [
        Line(
            label=group.label,
            points=[
                (point.epoch, point.learning_rate)
                for point in comparison.runs[group.runs[0]].curves.steps
                if point.learning_rate is not None
            ],
            style=number,
        )
        for number, group in enumerate(groups)
    ]
    numbered = {
        "accuracy": ("Accuracy after each epoch", accuracy, "{:.2%}"),
        "accuracy-over-time": ("Accuracy over time", over_time, "{:.2%}"),
        "loss": ("Loss after each epoch", loss, "{:.4g}"),
        "images-per-second": ("Images/s per node", speed, "{:,.0f}"),
        "learning-rate": ("Learning rate", rates, "{:.4g}"),
    }
    plots = [
        Plot(
            name=name,
            title=title,
            description=_description(title, lines, form, comparison),
            lines=[_restyled(line, number) for number, line in enumerate(lines)],
            x_label="time since the start" if name == "accuracy-over-time" else EPOCH,
            percent=name.startswith("accuracy"),
            log=name == "loss" and _is_positive(lines),
            from_zero=name in ("images-per-second", "learning-rate"),
        )
        for name, (title, lines, form) in numbered.items()
    ]
    return [plot for plot in plots if any(line.points for line in plot.lines)]


def _line(group: Repeats, value: Callable[[MeanPoint], Spread | None], *, over_time: bool = False) -> Line:
    known = [(point, spread) for point in group.epochs if (spread := value(point)) is not None]
    points = [(point.at_s if over_time else float(point.epoch), spread.mean) for point, spread in known]
    deviations = [spread.deviation for _, spread in known if spread.deviation is not None]
    return Line(label=_label(group), points=points, spread=deviations if len(deviations) == len(points) else ())


def _restyled(line: Line, number: int) -> Line:
    return Line(label=line.label, points=line.points, style=number, spread=line.spread)


def _label(group: Repeats) -> str:
    return group.label if len(group.runs) == 1 else f"{group.label}, mean of {len(group.runs)}"


def _is_positive(lines: Sequence[Line]) -> bool:
    values = [
        value - half
        for line in lines
        for (_, value), half in zip(line.points, line.spread or [0.0] * len(line.points), strict=True)
    ]
    return bool(values) and min(values) > 0


def _description(title: str, lines: Sequence[Line], form: str, comparison: Comparison) -> str:
    """Say where each line ends, and what its label stands for."""
    said = []
    for line, group in zip(lines, comparison.repeats, strict=True):
        if line.points:
            names = " and ".join(comparison.runs[place].run_id for place in group.runs)
            said.append(f"{group.label} ({names}) ends with {form.format(line.points[-1][1])}")
    return f"{title}: {'; '.join(said)}."
