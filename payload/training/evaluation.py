"""The network on images that it was not trained on. Every function here runs on every rank."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from payload.data.batches import test_batches
from payload.data.parts import Part, View
from payload.training import distributed
from payload.training.evaluation_step import make_evaluation_step
from payload.training.records import Figures
from payload.training.run import Run

SLOTS: Final = 512
"""Test images a rank and step at most: bounds the memory of an evaluation."""
PIXELS: Final = 512 * 28 * 28
"""Pixels a rank and step at most, beyond which there are fewer slots; at least one batch of training fits anyway."""


def evaluate(run: Run, part: Part, view: View) -> Figures:
    """Return mean loss and accuracies over a part, each image once, whatever the number of ranks (collective)."""
    sums = np.zeros(3, np.float64)
    with run.state.averaged():
        for batch in test_batches(part, view, slots=slots(run, view), rank=run.ranks.rank, ranks=run.ranks.size):
            sums += run.evaluation_step(batch.images, batch.labels, batch.weights).numpy()
    loss, first, five = distributed.sum_values(sums, name="evaluation") / part.examples
    return Figures(loss=float(loss), accuracy=float(first), top5_accuracy=float(five))


def confusion_counts(run: Run, part: Part, view: View) -> npt.NDArray[Any]:
    """Count how many images of each class (row) are taken for which (column), over all ranks (collective)."""
    counts = np.zeros((part.classes, part.classes), np.int64)
    step = make_evaluation_step(run.state.model, confusion=True)
    with run.state.averaged():
        for batch in test_batches(part, view, slots=slots(run, view), rank=run.ranks.rank, ranks=run.ranks.size):
            counts += step(batch.images, batch.labels, batch.weights)[1].numpy()
    return distributed.sum_values(counts, name="confusion")


def slots(run: Run, view: View) -> int:
    """Return the test images a rank and step: as many as memory for the training batch holds for sure."""
    largest = max(phase.global_batch for phase in run.schedule.phases)
    training = -(-largest // run.ranks.size)
    return max(min(SLOTS, PIXELS // (view.size[0] * view.size[1])), min(training, SLOTS), 1)
