"""The classes that a run confused, from its confusion.json and mistakes.json. Recall and precision are
computed here.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import struct
from typing import Any, Final

from cluster.report.run_files import Document, documents, number
from cluster.report.shown_values import plain

MAX_CLASSES: Final = 2000
MAX_PAIRS: Final = 10
MAX_IMAGES: Final = 24
MAX_BYTES: Final = 32 << 10
"""Maximum size of an image. A run writes at most 8 kB."""
MAX_PIXELS: Final = 256
_PNG_HEAD: Final = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
"""Width and height follow it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confused:
    """Number of images of one class that were recognized as another."""

    truth: str
    recognized: str
    images: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfusionMatrix:
    """Number of images by true and recognized class."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    """[classes, classes]: true class by recognized class."""
    recall: tuple[float | None, ...]
    precision: tuple[float | None, ...]
    confused: tuple[Confused, ...]
    """The pairs with the most images, in descending order."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MistakenImage:
    """A test image that was recognized as a wrong class with high confidence."""

    truth: str
    recognized: str
    confidence: float
    """Probability of the recognized class, 0 to 1."""
    png_base64: str


def confusion_of(found: Document | None) -> ConfusionMatrix | None:
    """Return the matrix in a run's confusion.json, with the MAX_PAIRS most confused pairs.

    Returns None for None, for a document without a square matrix of counts, and for more than MAX_CLASSES classes.
    """
    labels: Any = (found or {}).get("labels")
    counts: Any = (found or {}).get("counts")
    if not isinstance(labels, list) or not _is_square(counts, len(labels)):
        return None
    names, places = tuple(plain(label) for label in labels), range(len(labels))
    wrong = sorted((-counts[a][b], a, b) for a in places for b in places if a != b and counts[a][b])[:MAX_PAIRS]
    return ConfusionMatrix(
        labels=names,
        counts=tuple(tuple(row) for row in counts),
        recall=tuple(_ratio(row[place], sum(row)) for place, row in enumerate(counts)),
        precision=tuple(_ratio(counts[place][place], sum(row[place] for row in counts)) for place in places),
        confused=tuple(Confused(truth=names[a], recognized=names[b], images=-images) for images, a, b in wrong),
    )


def _is_square(counts: Any, side: int) -> bool:
    return (
        isinstance(counts, list)
        and 0 < len(counts) == side <= MAX_CLASSES
        and all(isinstance(row, list) and len(row) == side for row in counts)
        and all(type(count) is int and count >= 0 for row in counts for count in row)
    )


def _ratio(part: int, total: int) -> float | None:
    return part / total if total else None


def mistakes_of(found: Document | None) -> tuple[MistakenImage, ...]:
    """Return the mistaken images in a run's mistakes.json, at most MAX_IMAGES; () for None.

    Entries without a small PNG or a probability are left out.
    """
    return tuple(
        MistakenImage(
            truth=plain(each.get("class")),
            recognized=plain(each.get("recognized_as")),
            confidence=confidence,
            png_base64=base64.b64encode(png).decode(),
        )
        for each in documents((found or {}).get("images"))[:MAX_IMAGES]
        if (confidence := number(each.get("confidence"))) is not None
        and 0 <= confidence <= 1
        and (png := _small_png(each.get("png")))
    )


def _small_png(text: Any) -> bytes | None:
    """Decode an image from base64. Return None if it is not a PNG, or is larger than MAX_BYTES or MAX_PIXELS.

    MAX_PIXELS limits width and height.
    """
    if not isinstance(text, str) or len(text) > 2 * MAX_BYTES:
        return None
    try:
        png = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(png) > MAX_BYTES or not png.startswith(_PNG_HEAD) or len(png) < len(_PNG_HEAD) + 8:
        return None
    width, height = struct.unpack_from(">II", png, len(_PNG_HEAD))
    return png if 0 < width <= MAX_PIXELS and 0 < height <= MAX_PIXELS else None
