"""Which rank gets which example at which step: none is lost or repeated, for any number of ranks.

Batches are cut from one order over all ranks, and a batch is then split among the ranks. So the batches, and with them
the gradients, do not depend on the number of ranks, and a run may continue on another number of them.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """One rank's examples of one step."""

    positions: npt.NDArray[np.int64]
    """[slots]: positions in the split; 0 in an unused slot."""
    used: int
    """Number of used slots, which come first."""
    batch_size: int
    """Examples of the step over all ranks: the divisor of summed losses."""

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """Return 1 for an example, 0 for an unused slot; [slots]."""
        return (np.arange(len(self.positions)) < self.used).astype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shares:
    """The shares of one rank: an order of examples cut into batches, and each batch into the shares of all ranks."""

    order: npt.NDArray[np.int64]
    """Positions of the examples in a split, in the order in which they are used."""
    global_batch: int
    """Examples of a step over all ranks; the last step may have fewer."""
    rank: int
    ranks: int
    by_place: bool = False
    """Share out a batch by positions in the split instead of by order: where positions follow the files, a rank reads
    few of them."""

    def __post_init__(self) -> None:
        if self.global_batch < 1:
            raise ValueError(f"global_batch = {self.global_batch}: must be at least 1")
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"rank = {self.rank}: must be 0 to {self.ranks - 1}")

    @property
    def steps(self) -> int:
        """Return the number of steps, which is the same on all ranks."""
        return steps_per_epoch(len(self.order), self.global_batch)

    @property
    def slots(self) -> int:
        """Return the slots of a share, the same at every step and on every rank."""
        return -(-self.global_batch // self.ranks)

    def __getitem__(self, step: int) -> Share:
        """Return this rank's share of a step. Raises IndexError beyond the last."""
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} of {self.steps}")
        batch = self.order[step * self.global_batch : (step + 1) * self.global_batch]
        if self.by_place:
            batch = np.sort(batch)
        start, end = shard_bounds(len(batch), self.rank, self.ranks)
        positions = np.zeros(self.slots, np.int64)
        positions[: end - start] = batch[start:end]
        return Share(positions=positions, used=end - start, batch_size=len(batch))


def epoch_order(examples: int, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return the positions 0..examples-1 shuffled by seed and epoch alone, so alike on every rank."""
    return np.random.default_rng([seed, epoch]).permutation(examples)


def steps_per_epoch(examples: int, global_batch: int) -> int:
    """Count the batches that cover all examples, the last one perhaps smaller."""
    return -(-examples // global_batch)


def shard_bounds(size: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return start and end of a rank's part of `size` examples; parts differ by one example at most."""
    if not 0 <= rank < ranks:
        raise ValueError(f"rank = {rank}: must be 0 to {ranks - 1}")
    return size * rank // ranks, size * (rank + 1) // ranks
