"""What training asks of data, whatever they are made of: splits, how they are looked at, and batches.

No TensorFlow: splits are opened, and refused where they are damaged, before it is imported.
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
    """One split of a data set: the training images, or those for validation or test."""

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
        """Return what was left out when the split was opened, on request, in words that name the file."""

    def digest(self) -> bytes:
        """Return 32 bytes by which ranks find out that they hold the same data."""

    def order(self, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Return the examples in the order of one epoch, the same on every rank and at every time."""

    def pick(self, positions: npt.NDArray[np.int64]) -> Split:
        """Return the split that has these examples alone, in this order."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """Hold the splits of one data set."""

    train: Split
    validation: Split | None
    """Held back from the training images, to be evaluated on after each epoch in place of the test images."""
    test: Split

    @property
    def damage(self) -> tuple[str, ...]:
        """Return what was left out when the splits were opened, each once."""
        return tuple(dict.fromkeys(line for split in self._all for line in split.damage))

    def digest(self) -> bytes:
        """Return 32 bytes by which ranks find out that they hold the same data."""
        return hashlib.sha256(b"".join(split.digest() for split in self._all)).digest()

    @property
    def _all(self) -> list[Split]:
        return [split for split in (self.train, self.validation, self.test) if split]


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """Say how images are looked at. All random changes are drawn by seed, epoch and example."""

    size: tuple[int, int]
    """Height and width of the images of a batch, pixels."""
    smallest_crop: float = 0.0
    """Least part of an image's area that a random crop keeps; 0: no random crops. Training only, as all below but
    the last."""
    flip: bool = False
    """Mirror every other image, left to right."""
    rotation_deg: float = 0.0
    """Largest rotation either way."""
    shift_fraction: float = 0.0
    """Largest shift either way, part of width and height."""
    zoom_fraction: float = 0.0
    """Largest enlargement or reduction, part of the size."""
    rectangular: bool = False
    """Test images keep about their shape, with an area near that of `size`. It says nothing where all share one."""

    @property
    def moves(self) -> bool:
        """Tell whether images are rotated, shifted or zoomed."""
        return bool(self.rotation_deg or self.shift_fraction or self.zoom_fraction)

    @property
    def is_random(self) -> bool:
        """Tell whether an image looks another way in each epoch."""
        return self.moves or self.flip or bool(self.smallest_crop)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Hold one rank's examples of one step, as TensorFlow tensors."""

    images: Any
    """uint8 or float32 [slots, height, width, channels], 0 to 255."""
    labels: Any
    """int32 [slots]."""
    weights: Any
    """float32 [slots]: 1 for an example, 0 for a slot that is not used or whose record is damaged."""
    batch_size: int
    """Examples of the step over all ranks, damaged ones included: by it summed losses become means."""
    skipped: int = 0
    """Damaged records of this rank's that were left out, on request."""
