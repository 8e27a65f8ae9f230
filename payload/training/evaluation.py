"""Evaluate the network on validation or test images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from payload.data.dataset import Batch, DataError, Split, View
from payload.data.pipeline.batches import test_batches
from payload.training import distributed
from payload.training.batch_feed import reading_errors
from payload.training.distributed import Ranks
from payload.training.evaluation_step import EvaluationStep, evaluation_slots, make_evaluation_step
from payload.training.reporting.confusion_matrix import Mistake, mistakes_of, surest
from payload.training.reporting.result_file import Scores
from payload.training.train_state import TrainState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Evaluate one network on all ranks. All methods are collective."""

    state: TrainState
    step: EvaluationStep
    ranks: Ranks
    training_batch: int
    """Images of this rank in the largest training step."""
    threads: int
    """Images to decode concurrently; 0: one for each core of this rank."""

    def evaluate(self, split: Split, view: View) -> Scores:
        """Return the mean loss and the accuracies over a split. Each image is used once, with any number of ranks.

        The network uses the moving average of its weights, if one is kept. Damaged images that are skipped on request
        are not counted. Raises DataError if no images remain.
        """

        def measure(batch: Batch) -> npt.NDArray[Any]:
            sums = self.step(batch.images, batch.labels, batch.weights).numpy()
            return np.append(sums, np.sum(batch.weights.numpy(), dtype=np.float64))

        *sums, images = self._sums(split, view, np.zeros(4, np.float64), measure, "evaluation")
        if not images:
            raise DataError(
                f"none of the {split.examples} images for the evaluation can be read; replace the damaged files that "
                "the lines above name"
            )
        loss, first, five = (float(value / images) for value in sums)
        return Scores(loss=loss, accuracy=first, top5_accuracy=five)

    def confusion(self, split: Split, view: View) -> tuple[npt.NDArray[Any], list[Mistake]]:
        """Return counts of images by true class (row) and predicted class (column), and the most confident mistakes.

        The counts are int64 [classes, classes]. Both are over all ranks, with at most `MOST` mistakes. The network's
        weights are the same as in `evaluate`.
        """
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
        """Sum `measure` over all batches and all ranks, from `start`. A data error on one rank stops all ranks."""

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
            with self.state.optimizer.averaged():
                return sum((measure(batch) for batch in reading_errors(batches)), start)

        return distributed.sum_values(distributed.attempt(self.ranks, own), name=name)
