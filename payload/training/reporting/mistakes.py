"""The test images that the network is surest about and wrong: mistakes.json, with a small picture of each.

They tell more than counts do: a class that is hard to tell apart, a label that is wrong, an image that is spoilt.
"""

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

MISTAKES_FILE: Final = "mistakes.json"
MOST: Final = 12
"""Images kept: a rank's share of them is 12 pictures, 40 kB at most."""
SIDE: Final = 48
"""Pixels of the longer side of a picture; a smaller image keeps its size."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mistake:
    """One test image that was taken for another class."""

    label: int
    """Its true class."""
    taken_for: int
    confidence: float
    """Probability that the network gave to the class that it took it for, 0 to 1."""
    png: bytes


def mistakes_of(
    images: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    taken_for: npt.NDArray[Any],
    confidence: npt.NDArray[Any],
) -> list[Mistake]:
    """Return the surest mistakes of a batch: at most MOST, the surest first.

    `images`: uint8 or float32 [slots, height, width, 1 or 3], 0 to 255; the others [slots]. Weight 0 is no image.
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
    """Return the mistakes of the highest confidence, the surest first; the same ones in whatever order they come."""
    return sorted(mistakes, key=lambda each: (-each.confidence, each.label, each.taken_for, each.png))[:most]


def picture(image: npt.NDArray[Any]) -> bytes:
    """Return an image of [height, width, 1 or 3], 0 to 255, as a small PNG."""
    shown = np.rint(image).clip(0, 255).astype(np.uint8)
    small = Image.fromarray(shown[..., 0] if shown.shape[-1] == 1 else shown)
    small.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def write_mistakes(run_dir: Path, mistakes: Sequence[Mistake], labels: Sequence[str]) -> None:
    """Write mistakes.json. `labels`: the names of the classes. Raises StorageError."""
    document = {
        "images": [
            {
                "class": labels[each.label],
                "recognised_as": labels[each.taken_for],
                "confidence": round(each.confidence, 4),
                "png": base64.b64encode(each.png).decode(),
            }
            for each in mistakes
        ]
    }
    replace_file(run_dir / MISTAKES_FILE, json.dumps(document, indent=1).encode() + b"\n")
