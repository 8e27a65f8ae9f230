"""Images of noise, for measuring: as many as are asked for, in the memory of a few.

Labels tell nothing of the images: a network that gets them right has learnt them by heart.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

from payload.data.pipeline.changes import uniforms
from payload.data.pipeline.sharding import epoch_order

POOL_BYTES: Final = 64 << 20
"""Memory of the distinct images; the others repeat them."""
TRAINING_IMAGES: Final = 1_281_167
TEST_IMAGES: Final = 50_000
"""As many as ImageNet has, so that an epoch takes as many steps."""
_LABELS: Final = 16
"""Stream of the labels."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticSplit:
    """Images that follow from a seed and a position."""

    examples: int
    classes: int
    size: tuple[int, int]
    channels: int
    seed: int

    @functools.cached_property
    def labels(self) -> npt.NDArray[np.int32]:
        """Return the class of each example."""
        drawn = uniforms(np.arange(self.examples), seed=self.seed, epoch=0, stream=_LABELS, count=1)
        return (drawn[:, 0] * self.classes).astype(np.int32)

    @functools.cached_property
    def _pool(self) -> npt.NDArray[np.uint8]:
        shape = (*self.size, self.channels)
        count = min(self.examples, max(1, POOL_BYTES // int(np.prod(shape))))
        return np.random.default_rng(self.seed).integers(0, 256, (count, *shape), np.uint8)

    @property
    def damage(self) -> tuple[str, ...]:
        """Return nothing: there is nothing to damage."""
        return ()

    def digest(self) -> bytes:
        """Return the SHA-256 of the description, from which all images follow."""
        return hashlib.sha256(repr(self).encode()).digest()

    def order(self, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Shuffle all images."""
        return epoch_order(self.examples, seed=seed, epoch=epoch)

    def pick(self, positions: npt.NDArray[np.int64]) -> SyntheticSplit:
        """Return a split of as many images: of noise, any will do."""
        return dataclasses.replace(self, examples=len(positions))

    def gather(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the images at these positions, uint8 [N, height, width, channels]."""
        return self._pool[positions % len(self._pool)]
