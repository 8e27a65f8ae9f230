"""The plots of a run's curves: what is drawn of them, and what is told in a sentence because it did not change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cluster.report.line_plots import EPOCH, Line, Plot, Point
from cluster.report.model import Curves
from cluster.report.wording import listed


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
    """Return where each line begins and ends, as a sentence."""
    said = [
        f"{line.label} from {form.format(line.points[0][1])} to {form.format(line.points[-1][1])}"
        for line in lines
        if line.points
    ]
    return f"{what}: {'; '.join(said)}." if said else f"{what}."
