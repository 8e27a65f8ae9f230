"""Generate data sets for tests: shapes that are not classified by chance, in every file format of the payload."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from payload.data.records.tf_example import IMAGE, LABEL, example
from payload.data.records.tfrecord import framed

SHAPES: Final = ("circle", "cross", "square", "triangle")
"""Names of the classes, in the order of their labels."""


def drawn_labels(count: int) -> npt.NDArray[np.int64]:
    """Return labels that assign the classes in turn, so that all have the same number of images."""
    return np.arange(count) % len(SHAPES)


def drawing(label: int, *, height: int, width: int, seed: int) -> npt.NDArray[np.uint8]:
    """Draw one bright shape of random color, place and size on dark noise; uint8 [height, width, 3].

    Its size is between 0.4 and 0.7 of the shorter side. It is in the middle of the image, so that most crops show it.
    """
    random = np.random.default_rng([seed, label])
    image = random.integers(0, 90, (height, width, 3))
    radius = min(height, width) * random.uniform(0.2, 0.35)
    center_y, center_x = height * random.uniform(0.4, 0.6), width * random.uniform(0.4, 0.6)
    rows, columns = np.mgrid[:height, :width]
    down, right = (rows - center_y) / radius, (columns - center_x) / radius
    inside = {
        "circle": down**2 + right**2 <= 1,
        "cross": (np.minimum(abs(down), abs(right)) <= 0.3) & (np.maximum(abs(down), abs(right)) <= 1),
        "square": np.maximum(abs(down), abs(right)) <= 0.85,
        "triangle": (down <= 0.9) & (2 * abs(right) <= down + 1),
    }[SHAPES[label]]
    image[inside] = random.integers(140, 256, 3)
    return image.astype(np.uint8)


def gray(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the mean of the three colors, uint8 [height, width]."""
    mean: npt.NDArray[np.float64] = image.mean(axis=2)
    return mean.astype(np.uint8)


def write_idx(directory: Path, *, training: int, test: int, side: int = 28) -> None:
    """Write four files with MNIST's names that contain gray drawings; classes are those of SHAPES."""
    directory.mkdir(parents=True, exist_ok=True)
    for prefix, count, seed in (("train", training, 0), ("t10k", test, 1_000_000)):
        labels = drawn_labels(count)
        images = [gray(drawing(int(label), height=side, width=side, seed=seed + n)) for n, label in enumerate(labels)]
        pixels = b"".join(image.tobytes() for image in images)
        header = struct.pack(">HBB3I", 0, 8, 3, count, side, side)
        (directory / f"{prefix}-images-idx3-ubyte").write_bytes(header + pixels)
        header = struct.pack(">HBBI", 0, 8, 1, count)
        (directory / f"{prefix}-labels-idx1-ubyte").write_bytes(header + labels.astype(np.uint8).tobytes())


def write_cifar10(directory: Path, *, per_file: int, test: int) -> None:
    """Write the six files of CIFAR-10's binary version with drawings; classes are those of SHAPES."""
    directory.mkdir(parents=True, exist_ok=True)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    for file, name in enumerate(names):
        records = []
        for n, label in enumerate(drawn_labels(test if name.startswith("test") else per_file)):
            image = drawing(int(label), height=32, width=32, seed=file * 100_000 + n)
            records.append(bytes([label]) + image.transpose(2, 0, 1).tobytes())
        (directory / name).write_bytes(b"".join(records))


def encoded(image: npt.NDArray[np.uint8], kind: str = "JPEG") -> bytes:
    """Encode an image as JPEG of quality 90, or as PNG."""
    content = io.BytesIO()
    Image.fromarray(image).save(content, kind, quality=90)
    return content.getvalue()


def record(image: bytes, label: int, *, first_label: int = 1) -> bytes:
    """Return a record with the usual ImageNet fields."""
    return framed(example({IMAGE: image, LABEL: label + first_label, "image/filename": b"drawn"}))


def write_records(
    directory: Path,
    *,
    training: int,
    test: int,
    files: int = 2,
    side: int = 48,
    first_label: int = 1,
    kind: str = "JPEG",
) -> None:
    """Write drawings as TFRecord files, train-00000-of-NNNNN and validation-00000-of-NNNNN, at most `files` each.

    Sizes vary around `side`, from a third taller than wide to a third wider than tall. Classes are those of SHAPES.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for part, count, seed in (("train", training, 0), ("validation", test, 1_000_000)):
        parts = min(files, count)
        contents = [b""] * parts
        for n, label in enumerate(drawn_labels(count)):
            height, width = side + side * (n % 3) // 6, side + side * (n % 5) // 12
            image = drawing(int(label), height=height, width=width, seed=seed + n)
            contents[n * parts // count] += record(encoded(image, kind), int(label), first_label=first_label)
        for number, content in enumerate(contents):
            (directory / f"{part}-{number:05d}-of-{parts:05d}").write_bytes(content)


def write_images(root: Path, *, training: int, validation: int, side: int = 48) -> None:
    """Write drawings in ImageNet's layout: train/CLASS/*.JPEG and validation/CLASS/*.JPEG; folders are SHAPES."""
    for part, count, seed in (("train", training, 0), ("validation", validation, 1_000_000)):
        for n, label in enumerate(drawn_labels(count)):
            height, width = side + side * (n % 3) // 6, side + side * (n % 5) // 12
            folder = root / part / SHAPES[label]
            folder.mkdir(parents=True, exist_ok=True)
            image = drawing(int(label), height=height, width=width, seed=seed + n)
            (folder / f"{part}_{n:05d}.JPEG").write_bytes(encoded(image))
