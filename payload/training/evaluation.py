"""Evaluation: the network on images that it was not trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from payload.data.pipeline.batches import test_batches
from payload.data.types import Batch, DataError, Split, View
from payload.training import distributed
from payload.training.batch_feed import reading_errors
from payload.training.distributed import Ranks
from payload.training.evaluation_step import EvaluationStep, evaluation_slots, make_evaluation_step
from payload.training.reporting.confusion import Mistake, mistakes_of, surest
from payload.training.run_files import Scores
from payload.training.state import TrainState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Evaluate one network. All methods are collective."""

    state: TrainState
    step: EvaluationStep
    ranks: Ranks
    training_batch: int
    """Images of this rank in the largest training step."""
    threads: int
    """Images decoded at a time; 0: a rank's share of the cores."""

    def evaluate(self, split: Split, view: View) -> Scores:
        """Return mean loss and accuracies over a split, each image once, whatever the number of ranks.

        Damaged images that are left out, on request, count as neither right nor wrong. Raises DataError where none is
        left.
        """

        def measure(batch: Batch) -> npt.NDArray[Any]:
            sums = self.step(batch.images, batch.labels, batch.weights).numpy()
            return np.append(sums, np.sum(batch.weights.numpy(), dtype=np.float64))

        *sums, images = self._sums(split, view, np.zeros(4, np.float64), measure, "evaluation")
        if not images:
            raise DataError(
                f"none of {split.examples} images to evaluate on can be read; replace the files that were named"
            )
        loss, first, five = (float(value / images) for value in sums)
        return Scores(loss=loss, accuracy=first, top5_accuracy=five)

    def confusion(self, split: Split, view: View) -> tuple[npt.NDArray[Any], list[Mistake]]:
        """Count how many images of each class (row) are taken for which (column), and find the surest mistakes."""
        step = make_evaluation_step(self.state.model, confusion=True)
        found: list[Mistake] = []

        def measure(batch: Batch) -> npt.NDArray[Any]:
            _, counted, taken_for, confidence = step(batch.images, batch.labels, batch.weights)
            arrays = (each.numpy() for each in (batch.images, batch.labels, batch.weights, taken_for, confidence))
            found[:] = surest([*found, *mistakes_of(*arrays)])
            counts: npt.NDArray[Any] = counted.numpy()
            return counts

        counts = self._sums(split, view, np.zeros((split.classes, split.classes), np.int64), measure, "confusion")
        gathered = distributed.gather_values(found, name="mistakes")
        return counts, surest(mistake for mistakes in gathered for mistake in mistakes)

    def _sums(
        self,
        split: Split,
        view: View,
        start: npt.NDArray[Any],
        measure: Callable[[Batch], npt.NDArray[Any]],
        name: str,
    ) -> npt.NDArray[Any]:
        """Add what is measured of each batch to `start`, over all ranks; data that fail on one rank end all."""

        def own() -> npt.NDArray[Any]:
            batches = test_batches(
                split,
                view,
                slots=evaluation_slots(view, self.training_batch),
                rank=self.ranks.rank,
                ranks=self.ranks.size,
                threads=self.threads,
                ranks_on_node=self.ranks.local_size,
            )
            with self.state.averaged():
                return sum((measure(batch) for batch in reading_errors(batches)), start)

        return distributed.sum_values(distributed.attempt(self.ranks, own), name=name)
