"""Types for data: splits of a data set, views of their images, and batches.

This module does not import TensorFlow, so that damaged splits can be rejected before TensorFlow is loaded.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agent.errors import ReportedError


class DataError(ReportedError, ValueError):
    """Data are missing, damaged or inconsistent. The message names the file or flag."""


class Split(Protocol):
    """One split of a data set: training, validation or test images."""

    @property
    def labels(self) -> npt.NDArray[np.int32]:
        """Return the class of each example, [examples], 0 to classes - 1."""

    @property
    def examples(self) -> int:
        """Return the number of examples."""

    @property
    def classes(self) -> int:
        """Return the number of classes."""

    @property
    def channels(self) -> int:
        """Return the number of color channels: 1 or 3."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Return the height and width in pixels, or None if the images differ in size."""

    @property
    def damage(self) -> tuple[str, ...]:
        """Describe the damaged files and records that were skipped when the split was opened."""

    def digest(self) -> bytes:
        """Return a 32-byte digest. Ranks compare it to verify that they have the same data."""

    def order(self, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Return the positions of all examples, shuffled for one epoch; the same on every rank and in every process."""

    def pick(self, positions: npt.NDArray[np.int64]) -> Split:
        """Return a split with only the examples at these positions.

        Images in memory keep this order, and records get the order of their files. Synthetic images are only reduced to
        this number.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """The splits of one data set."""

    train: Split
    validation: Split | None
    """Images held back from training. They replace the test images in the evaluation after each epoch."""
    test: Split

    @property
    def damage(self) -> tuple[str, ...]:
        """Describe the damaged files and records that were skipped when the splits were opened, without repetition."""
        return tuple(dict.fromkeys(line for split in self._all for line in split.damage))

    def digest(self) -> bytes:
        """Return a 32-byte digest. Ranks compare it to verify that they have the same data."""
        return hashlib.sha256(b"".join(split.digest() for split in self._all)).digest()

    @property
    def _all(self) -> list[Split]:
        return [split for split in (self.train, self.validation, self.test) if split]


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """How to crop, change and resize images. Random changes depend only on seed, epoch and example."""

    size: tuple[int, int]
    """Height and width of the images in a batch, pixels."""
    smallest_crop: float = 0.0
    """Minimum fraction of an image's area that a random crop keeps; 0: no random crops. This field and all below except
    `rectangular` apply to training only."""
    flip: bool = False
    """Mirror each image left to right with probability 1/2."""
    rotation_deg: float = 0.0
    """Maximum rotation in either direction."""
    shift_fraction: float = 0.0
    """Maximum shift in either direction, as a fraction of width and height."""
    zoom_fraction: float = 0.0
    """Maximum enlargement or reduction, as a fraction of the size."""
    rectangular: bool = False
    """Test images roughly keep their aspect ratio, at about the area of `size`. No effect if all have one size."""

    @property
    def moves(self) -> bool:
        """Return whether training images are rotated, shifted or zoomed at random."""
        return bool(self.rotation_deg or self.shift_fraction or self.zoom_fraction)

    @property
    def is_random(self) -> bool:
        """Return whether a training image changes from epoch to epoch."""
        return self.moves or self.flip or bool(self.smallest_crop)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """One rank's examples for one step, as TensorFlow tensors; an empty batch has NumPy arrays instead."""

    images: Any
    """uint8 or float32 [slots, height, width, channels], 0 to 255."""
    labels: Any
    """int32 [slots]."""
    weights: Any
    """float32 [slots]: 1 for an example, 0 for an unused slot or a damaged record."""
    batch_size: int
    """Examples in the step over all ranks, including damaged ones. Summed losses are divided by it."""
    skipped: int = 0
    """Damaged records of this rank that were skipped on request."""
