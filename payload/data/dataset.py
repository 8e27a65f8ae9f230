"""A data set in memory, and the choice of the one that a recipe names."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from payload.data.arrays import ArrayPart
from payload.data.parts import DataError

__all__ = ["DataError", "Dataset", "load_dataset"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """Hold images and labels of both parts. Pixels stay bytes until they are used: a quarter of the memory."""

    train_images: npt.NDArray[np.uint8]
    """[N, height, width, channels], 0 to 255."""
    train_labels: npt.NDArray[np.int32]
    """[N], 0 to classes - 1."""
    test_images: npt.NDArray[np.uint8]
    """[M, height, width, channels]."""
    test_labels: npt.NDArray[np.int32]
    """[M]."""
    classes: int

    def __post_init__(self) -> None:
        for part, images, labels in (
            ("training", self.train_images, self.train_labels),
            ("test", self.test_images, self.test_labels),
        ):
            if len(images) != len(labels):
                raise DataError(f"{len(images)} {part} images, but {len(labels)} labels; they must match one to one")
            if not len(labels):
                raise DataError(f"no {part} images")
            if labels.min() < 0 or labels.max() >= self.classes:
                raise DataError(f"{part} labels {labels.min()} to {labels.max()}; must be 0 to {self.classes - 1}")
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            shapes = f"{self.train_images.shape[1:]} and {self.test_images.shape[1:]}"
            raise DataError(f"training and test images have different shapes, {shapes}")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Return height, width and channels."""
        height, width, channels = self.train_images.shape[1:]
        return height, width, channels

    def parts(self, name: str) -> tuple[ArrayPart, ArrayPart]:
        """Return training and test images as parts. `name`: of the data set."""
        train = ArrayPart(
            name=f"training images of {name}", images=self.train_images, labels=self.train_labels, classes=self.classes
        )
        return train, ArrayPart(
            name=f"test images of {name}", images=self.test_images, labels=self.test_labels, classes=self.classes
        )

    def digest(self) -> bytes:
        """Return the SHA-256 of all pixels and labels, by which ranks find out that they hold the same data."""
        digest = hashlib.sha256()
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(f"{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.digest()


def load_dataset(name: str, data_dir: Path | None) -> Dataset:
    """Load the data set of that name; `data_dir` holds the files of those that no library ships."""
    if name == "digits":
        from payload.data.digits import load_digits

        return load_digits()
    if name == "fashion-mnist" and data_dir is not None:
        from payload.data.fashion_mnist import load_fashion_mnist

        return load_fashion_mnist(data_dir)
    raise DataError(f"no data set {name!r} in {data_dir}")
