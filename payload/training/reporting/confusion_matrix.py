"""Record misclassified test images: counts in confusion.json, and the most confident ones in mistakes.json."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from agent.files.atomic_write import replace_file

CONFUSION_FILE: Final = "confusion.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confusion:
    """The confusion matrix: images by true class (rows) and predicted class (columns)."""

    labels: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    """[classes, classes]."""

    def __post_init__(self) -> None:
        if self.counts.shape != (len(self.labels), len(self.labels)):
            raise ValueError(f"counts {self.counts.shape}: must be a row and a column for each of {len(self.labels)}")

    @property
    def images(self) -> int:
        """Return the number of counted images."""
        return int(self.counts.sum())

    @property
    def accuracy(self) -> float:
        """Return the fraction of images with a correct prediction, 0 to 1."""
        return float(np.trace(self.counts) / max(1, self.images))

    def recall(self) -> list[float | None]:
        """Return the fraction of each class that was predicted correctly; None for a class without images."""
        return _ratios(np.diag(self.counts), self.counts.sum(axis=1))

    def precision(self) -> list[float | None]:
        """Return the correct fraction of the predictions of each class; None for a class that was never predicted."""
        return _ratios(np.diag(self.counts), self.counts.sum(axis=0))

    def confused(self, most: int = 10) -> list[tuple[str, str, int]]:
        """Return true class, predicted class and number of images of the `most` most frequent confusions, in order."""
        wrong = self.counts * (1 - np.eye(len(self.labels), dtype=np.int64))
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = [divmod(int(place), len(self.labels)) for place in order]
        return [(self.labels[a], self.labels[b], int(wrong[a, b])) for a, b in pairs if wrong[a, b]]

    def document(self) -> dict[str, Any]:
        """Return the content of confusion.json: the matrix and its statistics."""
        return {
            "images": self.images,
            "accuracy": self.accuracy,
            "labels": list(self.labels),
            "recall": self.recall(),
            "precision": self.precision(),
            "confused": [{"class": a, "recognized_as": b, "images": count} for a, b, count in self.confused()],
            "rows": "true class",
            "columns": "recognized class",
            "counts": self.counts.tolist(),
        }


def write_confusion(run_dir: Path, confusion: Confusion) -> None:
    """Write confusion.json, with a line for each key and for each row of the counts. Raises StorageError."""
    document = confusion.document()
    counts = ",\n  ".join(json.dumps(row) for row in document.pop("counts"))
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    text = "{\n" + ",\n".join([*lines, f' "counts": [\n  {counts}\n ]']) + "\n}\n"
    replace_file(run_dir / CONFUSION_FILE, text.encode())


def _ratios(some: Sequence[int] | npt.NDArray[Any], whole: npt.NDArray[Any]) -> list[float | None]:
    return [float(a / b) if b else None for a, b in zip(some, whole, strict=True)]


MISTAKES_FILE: Final = "mistakes.json"
MOST: Final = 12
"""Maximum number of images to keep: 12 pictures of a rank take at most 40 kB."""
SIDE: Final = 48
"""Pixels of the longer side of a picture. Smaller images keep their size."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mistake:
    """A misclassified test image."""

    label: int
    """Number of its true class."""
    taken_for: int
    confidence: float
    """Probability of the wrongly predicted class, 0 to 1."""
    png: bytes


def mistakes_of(
    images: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    taken_for: npt.NDArray[Any],
    confidence: npt.NDArray[Any],
) -> list[Mistake]:
    """Return the most confident mistakes of a batch, the most confident first, at most MOST.

    `images`: uint8 or float32 [slots, height, width, 1 or 3], 0 to 255; the others [slots]. `taken_for` and
    `confidence`: the predicted class and its probability. Weight 0 marks an unused slot.
    """
    wrong = np.flatnonzero((weights > 0) & (labels != taken_for))
    chosen = wrong[np.argsort(-confidence[wrong], kind="stable")][:MOST]
    return [
        Mistake(
            label=int(labels[place]),
            taken_for=int(taken_for[place]),
            confidence=float(confidence[place]),
            png=picture(images[place]),
        )
        for place in chosen
    ]


def surest(mistakes: Iterable[Mistake], most: int = MOST) -> list[Mistake]:
    """Return the mistakes with the highest confidence, highest first, at most `most`. The input may have any order."""
    return sorted(mistakes, key=lambda each: (-each.confidence, each.label, each.taken_for, each.png))[:most]


def picture(image: npt.NDArray[Any]) -> bytes:
    """Encode an image, [height, width, 1 or 3], 0 to 255, as a PNG of at most SIDE pixels a side."""
    shown = np.rint(image).clip(0, 255).astype(np.uint8)
    small = Image.fromarray(shown[..., 0] if shown.shape[-1] == 1 else shown)
    small.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def write_mistakes(run_dir: Path, mistakes: Sequence[Mistake], labels: Sequence[str]) -> None:
    """Write mistakes.json, which includes the images. `labels`: the names of the classes. Raises StorageError."""
    document = {
        "images": [
            {
                "class": labels[each.label],
                "recognized_as": labels[each.taken_for],
                "confidence": round(each.confidence, 4),
                "png": base64.b64encode(each.png).decode(),
            }
            for each in mistakes
        ]
    }
    replace_file(run_dir / MISTAKES_FILE, json.dumps(document, indent=1).encode() + b"\n")
