"""The types of data: splits of a data set, views of their images, and batches.

No TensorFlow: splits are opened, and rejected where they are damaged, before it is imported.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agent.errors import ReportedError


class DataError(ReportedError, ValueError):
    """Report data that are missing, damaged or do not fit together; the message names the file."""


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
        """Return the channels of an image: 1 or 3."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Return height and width in pixels; None where the images have different ones."""

    @property
    def damage(self) -> tuple[str, ...]:
        """Return what was left out on request when the split was opened, in words that name the file."""

    def digest(self) -> bytes:
        """Return a digest of 32 bytes, by which ranks verify that they have the same data."""

    def order(self, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Return the examples in the order of one epoch, which is the same on every rank and in every process."""

    def pick(self, positions: npt.NDArray[np.int64]) -> Split:
        """Return a split of these examples alone, in this order."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """The splits of one data set."""

    train: Split
    validation: Split | None
    """Held back from the training images, and evaluated after each epoch in place of the test images."""
    test: Split

    @property
    def damage(self) -> tuple[str, ...]:
        """Return what was left out when the splits were opened, each once."""
        return tuple(dict.fromkeys(line for split in self._all for line in split.damage))

    def digest(self) -> bytes:
        """Return a digest of 32 bytes, by which ranks verify that they have the same data."""
        return hashlib.sha256(b"".join(split.digest() for split in self._all)).digest()

    @property
    def _all(self) -> list[Split]:
        return [split for split in (self.train, self.validation, self.test) if split]


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """How images are cropped, changed and resized. All random changes follow from seed, epoch and example."""

    size: tuple[int, int]
    """Height and width of the images of a batch, pixels."""
    smallest_crop: float = 0.0
    """Least fraction of an image's area that a random crop keeps; 0: no random crops. Training only, as all below but
    the last."""
    flip: bool = False
    """Mirror every other image, left to right."""
    rotation_deg: float = 0.0
    """Largest rotation either way."""
    shift_fraction: float = 0.0
    """Largest shift either way, as a fraction of width and height."""
    zoom_fraction: float = 0.0
    """Largest enlargement or reduction, as a fraction of the size."""
    rectangular: bool = False
    """Test images keep about their aspect ratio, at an area near that of `size`. No effect where all have one size."""

    @property
    def moves(self) -> bool:
        """Return whether images are rotated, shifted or zoomed."""
        return bool(self.rotation_deg or self.shift_fraction or self.zoom_fraction)

    @property
    def is_random(self) -> bool:
        """Return whether an image differs from epoch to epoch."""
        return self.moves or self.flip or bool(self.smallest_crop)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """One rank's examples of one step, as TensorFlow tensors."""

    images: Any
    """uint8 or float32 [slots, height, width, channels], 0 to 255."""
    labels: Any
    """int32 [slots]."""
    weights: Any
    """float32 [slots]: 1 for an example, 0 for an unused slot or a damaged record."""
    batch_size: int
    """Examples of the step over all ranks, damaged ones included: the divisor of summed losses."""
    skipped: int = 0
    """Damaged records of this rank that were left out on request."""
