"""The curves of a run, from the events of its metrics.jsonl."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import Final

from cluster.report.model import Curves, EpochPoint, StepPoint
from cluster.report.run_files import Document, number, whole

MOST_STEP_POINTS: Final = 300
"""Points of a curve over steps: as many as a figure of this width can show. More are averaged."""


def curves_of(metrics: Sequence[Document], *, began: float, nodes: int) -> Curves:
    """Build the curves. `began`: unix time of the run's start.

    A resumed run repeats what it had not saved: of an epoch that was trained twice, the last time counts.
    """
    epochs: list[EpochPoint] = []
    steps: list[StepPoint] = []
    evaluated = "test"
    batch: int | None = None
    for event in metrics:
        at = number(event.get("time"))
        if at is None:
            continue
        kind, at_s = event["event"], at - began
        if kind == "start":
            batch = whole(event.get("global_batch"))
            if whole(event.get("validation_images")):
                evaluated = "validation"
        elif kind == "epoch" and (epoch := _epoch_point(event, at_s, evaluated, nodes, batch)):
            _forget(epochs, epoch.epoch)
            epochs.append(epoch)
        elif kind == "step" and (step := _step_point(event, at_s)):
            _forget(steps, step.epoch)
            steps.append(step)
    return Curves(epochs=tuple(epochs), steps=tuple(thinned(steps)), evaluated=evaluated)


def _forget(points: list[EpochPoint] | list[StepPoint], position: float) -> None:
    """Remove the points from a position on, which a resumed run passes again."""
    while points and points[-1].epoch >= position:
        points.pop()


def _epoch_point(event: Document, at_s: float, evaluated: str, nodes: int, batch: int | None) -> EpochPoint | None:
    epoch, speed = whole(event.get("epoch")), number(event.get("images_per_s"))
    if epoch is None:
        return None
    return EpochPoint(
        epoch=epoch,
        at_s=at_s,
        train_loss=number(event.get("train_loss")),
        test_loss=number(event.get(f"{evaluated}_loss")),
        train_accuracy=number(event.get("train_accuracy")),
        test_accuracy=number(event.get(f"{evaluated}_accuracy")),
        # A record from before these were written has the batch of the start, which phases may have changed since.
        global_batch=whole(event.get("global_batch")) if "global_batch" in event else batch,
        image_size=whole(event.get("image_size")),
        images_per_s=speed,
        images_per_s_per_node=speed / nodes if speed is not None and nodes else None,
        seconds=number(event.get("seconds")),
        data_wait_s=number(event.get("data_wait_s")),
    )


def _step_point(event: Document, at_s: float) -> StepPoint | None:
    epoch, step, of = (whole(event.get(name)) for name in ("epoch", "step", "steps_per_epoch"))
    if epoch is None or step is None or not of or of < 0:
        return None
    return StepPoint(
        epoch=epoch - 1 + step / of,
        at_s=at_s,
        loss=number(event.get("loss")),
        accuracy=number(event.get("accuracy")),
        learning_rate=number(event.get("learning_rate")),
    )


def thinned(points: Sequence[StepPoint], most: int = MOST_STEP_POINTS) -> list[StepPoint]:
    """Return at most so many points, each the mean of neighbours; few points as they are."""
    if len(points) <= most:
        return list(points)
    edges = [round(number * len(points) / most) for number in range(most + 1)]
    return [_mean(points[first:last]) for first, last in itertools.pairwise(edges)]


def _mean(points: Sequence[StepPoint]) -> StepPoint:
    def of(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known else None

    return StepPoint(
        epoch=statistics.fmean(point.epoch for point in points),
        at_s=statistics.fmean(point.at_s for point in points),
        loss=of(point.loss for point in points),
        accuracy=of(point.accuracy for point in points),
        learning_rate=of(point.learning_rate for point in points),
    )
