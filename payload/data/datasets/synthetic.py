"""Generate random images for benchmarks: any number of them, using the memory of a few.

Labels are independent of the images, so a network can only memorize them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

from payload.data.pipeline.augmentation import uniforms
from payload.data.pipeline.sharding import epoch_order

POOL_BYTES: Final = 64 << 20
"""Maximum memory for distinct images. Further images repeat them."""
TRAINING_IMAGES: Final = 1_281_167
TEST_IMAGES: Final = 50_000
"""The sizes of ImageNet's splits, so that an epoch has the same number of steps."""
_LABELS: Final = 16
"""Stream of random numbers for the labels."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticSplit:
    """Random images that depend only on a seed and their position."""

    examples: int
    classes: int
    size: tuple[int, int]
    channels: int
    seed: int

    @functools.cached_property
    def labels(self) -> npt.NDArray[np.int32]:
        """Return a random class for each example, int32 [examples], 0 to classes - 1.

        It depends only on the seed and the position.
        """
        drawn = uniforms(np.arange(self.examples), seed=self.seed, epoch=0, stream=_LABELS, count=1)
        return (drawn[:, 0] * self.classes).astype(np.int32)

    @functools.cached_property
    def _pool(self) -> npt.NDArray[np.uint8]:
        shape = (*self.size, self.channels)
        count = min(self.examples, max(1, POOL_BYTES // int(np.prod(shape))))
        return np.random.default_rng(self.seed).integers(0, 256, (count, *shape), np.uint8)

    @property
    def damage(self) -> tuple[str, ...]:
        """Return an empty tuple. Generated images cannot be damaged."""
        return ()

    def digest(self) -> bytes:
        """Return the SHA-256 of this split's fields. They determine all images."""
        return hashlib.sha256(repr(self).encode()).digest()

    def order(self, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Return all positions, shuffled for one epoch."""
        return epoch_order(self.examples, seed=seed, epoch=epoch)

    def pick(self, positions: npt.NDArray[np.int64]) -> SyntheticSplit:
        """Return a split with as many images as there are positions. They are not the images at these positions."""
        return dataclasses.replace(self, examples=len(positions))

    def gather(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the images at these positions, uint8 [N, height, width, channels].

        Only as many images differ as fit into POOL_BYTES. Further positions repeat them.
        """
        return self._pool[positions % len(self._pool)]
