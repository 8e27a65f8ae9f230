"""Divide examples among ranks and steps: each example is used exactly once per epoch, with any number of ranks.

Batches are cut from one order over all ranks, then each batch is divided among the ranks. Batches and gradients
therefore do not depend on the number of ranks, and a run may resume with a different number.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """One rank's examples for one step."""

    positions: npt.NDArray[np.int64]
    """[slots]: positions in the split; 0 in unused slots."""
    used: int
    """Number of used slots. They come first."""
    batch_size: int
    """Examples in the step over all ranks. Summed losses are divided by it."""

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """Return 1 for each example and 0 for each unused slot; [slots]."""
        return (np.arange(len(self.positions)) < self.used).astype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shares:
    """One rank's shares of an epoch: the order of examples is cut into batches, and each batch among the ranks."""

    order: npt.NDArray[np.int64]
    """Positions in a split, in order of use."""
    global_batch: int
    """Examples in a step over all ranks. The last step may have fewer."""
    rank: int
    ranks: int
    by_place: bool = False
    """Sort each batch by position before dividing it. If positions follow the files, a rank then reads only a few
    files."""

    def __post_init__(self) -> None:
        if self.global_batch < 1:
            raise ValueError(f"global_batch = {self.global_batch}: must be at least 1")
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"rank = {self.rank}: must be 0 to {self.ranks - 1}")

    @property
    def steps(self) -> int:
        """Return the number of steps in the epoch, the same on all ranks."""
        return steps_per_epoch(len(self.order), self.global_batch)

    @property
    def slots(self) -> int:
        """Return the number of slots in a share, the same at every step and on every rank."""
        return -(-self.global_batch // self.ranks)

    def __getitem__(self, step: int) -> Share:
        """Return this rank's share of a step. Raises IndexError beyond the last step."""
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
    """Return the positions 0 to examples - 1, shuffled by seed and epoch only, so every rank gets the same order."""
    return np.random.default_rng([seed, epoch]).permutation(examples)


def steps_per_epoch(examples: int, global_batch: int) -> int:
    """Return the number of batches that cover all examples. The last batch may be smaller."""
    return -(-examples // global_batch)


def shard_bounds(size: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return the start (included) and end (excluded) of a rank's part of `size` examples.

    Parts differ in size by at most one. Raises ValueError for an invalid rank.
    """
    if not 0 <= rank < ranks:
        raise ValueError(f"rank = {rank}: must be 0 to {ranks - 1}")
    return size * rank // ranks, size * (rank + 1) // ranks
