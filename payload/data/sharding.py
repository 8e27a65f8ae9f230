"""Which rank sees which example at which step: without loss, without overlap, for any number of ranks.

Batches are cut from one order over all ranks, and a batch is then split among the ranks. So the batches, and with them
the gradients, do not depend on the number of ranks, and a run may continue on another number of them.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """List one rank's examples for each step of an epoch. Shapes are the same at every step and on every rank."""

    indices: npt.NDArray[np.int32]
    """[steps, slots]: positions in the data set; 0 in a slot that is not used."""
    weights: npt.NDArray[np.float32]
    """[steps, slots]: 1 for an example, 0 for an unused slot."""
    batch_sizes: npt.NDArray[np.int64]
    """[steps]: examples of the step over all ranks, by which summed losses become means."""

    @property
    def steps(self) -> int:
        """Return the number of steps, which is the same on all ranks."""
        return len(self.batch_sizes)


def epoch_order(examples: int, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Shuffle the positions 0..examples-1, the same way on every rank and at every time for one seed and epoch."""
    return np.random.default_rng([seed, epoch]).permutation(examples)


def steps_per_epoch(examples: int, global_batch: int) -> int:
    """Count the batches that cover all examples, the last one perhaps smaller."""
    return -(-examples // global_batch)


def shard_bounds(size: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return start and end of a rank's part of `size` examples; parts differ by one example at most."""
    if not 0 <= rank < ranks:
        raise ValueError(f"rank = {rank}: must be 0 to {ranks - 1}")
    return size * rank // ranks, size * (rank + 1) // ranks


def epoch_plan(order: npt.NDArray[np.int64], *, global_batch: int, rank: int, ranks: int) -> EpochPlan:
    """Cut an order into batches, and each batch into one rank's examples and unused slots."""
    if global_batch < 1:
        raise ValueError(f"global_batch = {global_batch}: must be at least 1")
    steps = steps_per_epoch(len(order), global_batch)
    slots = -(-global_batch // ranks)
    indices = np.zeros((steps, slots), np.int32)
    weights = np.zeros((steps, slots), np.float32)
    sizes = np.zeros(steps, np.int64)
    for step in range(steps):
        batch = order[step * global_batch : (step + 1) * global_batch]
        start, end = shard_bounds(len(batch), rank, ranks)
        indices[step, : end - start] = batch[start:end]
        weights[step, : end - start] = 1
        sizes[step] = len(batch)
    return EpochPlan(indices=indices, weights=weights, batch_sizes=sizes)
