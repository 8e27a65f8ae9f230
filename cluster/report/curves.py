"""The curves of a run, from the events in its metrics.jsonl."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Sequence
from typing import Final, TypeVar

from cluster.report.run_files import Document, number, whole

MAX_STEP_POINTS: Final = 300
"""Maximum number of points in a curve over steps. If there are more, neighbors are averaged."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochPoint:
    """Figures of one epoch. None if the record does not have the figure."""

    epoch: int
    """Counted from 1."""
    at_s: float
    """End of the epoch, seconds since the start of the run."""
    train_loss: float | None = None
    evaluation_loss: float | None = None
    """On the split in `Curves.evaluated`, like `evaluation_accuracy`."""
    train_accuracy: float | None = None
    evaluation_accuracy: float | None = None
    global_batch: int | None = None
    image_size: int | None = None
    """Height of the training images, pixels."""
    images_per_s: float | None = None
    """All ranks, during training steps."""
    images_per_s_per_node: float | None = None
    seconds: float | None = None
    """Duration, including the evaluation."""
    data_wait_s: float | None = None
    """Time that the slowest rank waited for images."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepPoint:
    """A training step, or the mean of consecutive ones."""

    epoch: float
    """Epochs done: 2.5 is the middle of the third."""
    at_s: float
    """Seconds since the start of the run."""
    loss: float | None = None
    accuracy: float | None = None
    learning_rate: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curves:
    """Figures that change during a run."""

    epochs: tuple[EpochPoint, ...] = ()
    steps: tuple[StepPoint, ...] = ()
    evaluated: str = "test"
    """The split that is evaluated after each epoch: test or validation."""


P = TypeVar("P", EpochPoint, StepPoint)


def curves_of(metrics: Sequence[Document], *, began: float, nodes: int) -> Curves:
    """Build the curves of a run from its events. `began` is the Unix time of its start, `nodes` its number of nodes.

    A resumed run repeats what it had not saved. If an epoch was trained twice, the second time counts. Events without a
    time are skipped. More than MAX_STEP_POINTS steps are averaged to that many points.
    """
    epochs: list[EpochPoint] = []
    steps: list[StepPoint] = []
    evaluated = "test"
    for event in metrics:
        at, kind, epoch = number(event.get("time")), event["event"], whole(event.get("epoch"))
        if at is None:
            continue
        if kind == "start" and whole(event.get("validation_images")):
            evaluated = "validation"
        elif kind == "epoch" and epoch is not None:
            speed = number(event.get("images_per_s"))
            point = EpochPoint(
                epoch=epoch,
                at_s=at - began,
                evaluation_loss=number(event.get(f"{evaluated}_loss")),
                evaluation_accuracy=number(event.get(f"{evaluated}_accuracy")),
                global_batch=whole(event.get("global_batch")),
                image_size=whole(event.get("image_size")),
                images_per_s_per_node=speed / nodes if speed is not None and nodes else None,
                **{
                    name: number(event.get(name))
                    for name in ("train_loss", "train_accuracy", "images_per_s", "seconds", "data_wait_s")
                },
            )
            _append(epochs, point)
        elif kind == "step" and epoch is not None:
            step, of = whole(event.get("step")), whole(event.get("steps_per_epoch"))
            if step is not None and of is not None and of > 0:
                values = {name: number(event.get(name)) for name in ("loss", "accuracy", "learning_rate")}
                _append(steps, StepPoint(epoch=epoch - 1 + step / of, at_s=at - began, **values))
    return Curves(epochs=tuple(epochs), steps=tuple(thinned(steps)), evaluated=evaluated)


def _append(points: list[P], point: P) -> None:
    """Append a point, after removing points of the same or a later epoch: a resumed run has passed them again."""
    while points and points[-1].epoch >= point.epoch:
        points.pop()
    points.append(point)


def thinned(points: Sequence[StepPoint], most: int = MAX_STEP_POINTS) -> list[StepPoint]:
    """Return all points, or if there are more than `most`, the means of `most` groups of neighbors."""
    if len(points) <= most:
        return list(points)
    edges = [round(number * len(points) / most) for number in range(most + 1)]
    return [_mean(points[first:last]) for first, last in itertools.pairwise(edges)]


def _mean(points: Sequence[StepPoint]) -> StepPoint:
    """Return the mean of consecutive steps. A figure is None if no step has it."""

    def of(name: str) -> float | None:
        known = [value for point in points if (value := getattr(point, name)) is not None]
        return statistics.fmean(known) if known else None

    return StepPoint(
        epoch=statistics.fmean(point.epoch for point in points),
        at_s=statistics.fmean(point.at_s for point in points),
        **{name: of(name) for name in ("loss", "accuracy", "learning_rate")},
    )
