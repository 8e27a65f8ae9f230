"""The network on images that it was not trained on. Every function here runs on every rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from payload.data.pipeline.batches import test_batches
from payload.data.types import Batch, DataError, Part, View
from payload.training import distributed
from payload.training.batch_feed import told
from payload.training.context import Run
from payload.training.evaluation_step import make_evaluation_step
from payload.training.run_files import Figures

SLOTS: Final = 512
"""Test images a rank and step at most: bounds the memory of an evaluation."""
PIXELS: Final = 512 * 28 * 28
"""Pixels a rank and step at most, beyond which there are fewer slots; at least one batch of training fits anyway."""


def evaluate(run: Run, part: Part, view: View) -> Figures:
    """Return mean loss and accuracies over a part, each image once, whatever the number of ranks (collective).

    Damaged images that are left out, on request, count as neither right nor wrong. Raises DataError where none is left.
    """

    def measure(batch: Batch) -> npt.NDArray[Any]:
        sums = run.evaluation_step(batch.images, batch.labels, batch.weights).numpy()
        return np.append(sums, np.sum(batch.weights.numpy(), dtype=np.float64))

    *sums, images = _sums(run, part, view, np.zeros(4, np.float64), measure, "evaluation")
    if not images:
        raise DataError(f"none of {part.examples} images to evaluate on can be read; replace the files that were named")
    loss, first, five = (float(value / images) for value in sums)
    return Figures(loss=loss, accuracy=first, top5_accuracy=five)


def confusion_counts(run: Run, part: Part, view: View) -> npt.NDArray[Any]:
    """Count how many images of each class (row) are taken for which (column), over all ranks (collective)."""
    step = make_evaluation_step(run.state.model, confusion=True)

    def measure(batch: Batch) -> npt.NDArray[Any]:
        counted: npt.NDArray[Any] = step(batch.images, batch.labels, batch.weights)[1].numpy()
        return counted

    return _sums(run, part, view, np.zeros((part.classes, part.classes), np.int64), measure, "confusion")


def _sums(
    run: Run, part: Part, view: View, start: npt.NDArray[Any], measure: Callable[[Batch], npt.NDArray[Any]], name: str
) -> npt.NDArray[Any]:
    """Add what is measured of each batch to `start`, over all ranks; data that fail on one end all (collective)."""

    def own() -> npt.NDArray[Any]:
        batches = test_batches(
            part,
            view,
            slots=slots(run, view),
            rank=run.ranks.rank,
            ranks=run.ranks.size,
            threads=run.settings.decode_threads,
            ranks_on_node=run.ranks.local_size,
        )
        with run.state.averaged():
            return sum((measure(batch) for batch in told(batches)), start)

    return distributed.sum_values(distributed.attempt(run.ranks, own), name=name)


def slots(run: Run, view: View) -> int:
    """Return the test images a rank and step: as many as memory for the training batch holds for sure."""
    largest = max(phase.global_batch for phase in run.schedule.phases)
    training = -(-largest // run.ranks.size)
    return max(min(SLOTS, PIXELS // (view.size[0] * view.size[1])), min(training, SLOTS), 1)
