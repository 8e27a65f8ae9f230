"""Data set splits that are held in memory. Pixels stay bytes until they are used, to save memory."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import numpy.typing as npt

from payload.data.dataset import DataError
from payload.data.pipeline.sharding import epoch_order


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArraySplit:
    """A split of a data set: images and labels in memory.

    Raises DataError if there are no images, not as many labels as images, or labels out of range.
    """

    name: str
    """Description for error messages, for example "training images of digits"."""
    images: npt.NDArray[np.uint8]
    """[N, height, width, channels], 0 to 255."""
    labels: npt.NDArray[np.int32]
    """[N], 0 to classes - 1."""
    classes: int

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise DataError(f"{len(self.images)} {self.name}, but {len(self.labels)} labels; the numbers must be equal")
        if not len(self.labels):
            raise DataError(f"there are no {self.name}; check that the files of the data set are complete")
        if self.labels.min() < 0 or self.labels.max() >= self.classes:
            rule = f"must be 0 to {self.classes - 1}"
            raise DataError(f"the {self.name} have labels {self.labels.min()} to {self.labels.max()}; {rule}")

    @property
    def examples(self) -> int:
        """Return the number of images."""
        return len(self.labels)

    @property
    def channels(self) -> int:
        """Return the number of color channels: 1 or 3."""
        return int(self.images.shape[3])

    @property
    def size(self) -> tuple[int, int]:
        """Return the height and width in pixels. All images have the same size."""
        return int(self.images.shape[1]), int(self.images.shape[2])

    @property
    def damage(self) -> tuple[str, ...]:
        """Return an empty tuple. Damaged files raise an error when the split is loaded."""
        return ()

    def digest(self) -> bytes:
        """Return the SHA-256 of all pixels and labels."""
        digest = hashlib.sha256()
        for array in (self.images, self.labels):
            digest.update(f"{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.digest()

    def order(self, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Return all positions, shuffled for one epoch."""
        return epoch_order(self.examples, seed=seed, epoch=epoch)

    def pick(self, positions: npt.NDArray[np.int64]) -> ArraySplit:
        """Return a split with only the images at these positions, in this order."""
        return dataclasses.replace(self, images=self.images[positions], labels=self.labels[positions])

    def gather(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the images at these positions, uint8 [N, height, width, channels]."""
        return self.images[positions]
