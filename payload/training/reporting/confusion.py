"""The confusion matrix of the test images, and its file confusion.json."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agent.files.atomic_write import replace_file

CONFUSION_FILE: Final = "confusion.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confusion:
    """The confusion matrix: images by true class (rows) and recognised class (columns)."""

    labels: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    """[classes, classes]."""

    def __post_init__(self) -> None:
        if self.counts.shape != (len(self.labels), len(self.labels)):
            raise ValueError(f"counts {self.counts.shape}: must be a row and a column for each of {len(self.labels)}")

    @property
    def images(self) -> int:
        """Return how many images were counted."""
        return int(self.counts.sum())

    @property
    def accuracy(self) -> float:
        """Return the fraction of all images that was recognised, 0 to 1."""
        return float(np.trace(self.counts) / max(1, self.images))

    def recall(self) -> list[float | None]:
        """Return the fraction of each class that was recognised; None for a class without images."""
        return _ratios(np.diag(self.counts), self.counts.sum(axis=1))

    def precision(self) -> list[float | None]:
        """Return the correct fraction of what was recognised as each class; None where nothing was."""
        return _ratios(np.diag(self.counts), self.counts.sum(axis=0))

    def confused(self, most: int = 10) -> list[tuple[str, str, int]]:
        """Return the pairs that are confused most: true class, recognised class, images."""
        wrong = self.counts * (1 - np.eye(len(self.labels), dtype=np.int64))
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = [divmod(int(place), len(self.labels)) for place in order]
        return [(self.labels[a], self.labels[b], int(wrong[a, b])) for a, b in pairs if wrong[a, b]]

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "images": self.images,
            "accuracy": self.accuracy,
            "labels": list(self.labels),
            "recall": self.recall(),
            "precision": self.precision(),
            "confused": [{"class": a, "recognised_as": b, "images": count} for a, b, count in self.confused()],
            "rows": "true class",
            "columns": "recognised class",
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
