"""The confusion matrix of a run, from its confusion.json. What follows from the counts is counted anew."""

from __future__ import annotations

from typing import Any, Final

from cluster.report.model import Confused, ConfusionMatrix
from cluster.report.run_files import Document
from cluster.report.wording import plain

MOST_CLASSES: Final = 2000
MOST_PAIRS: Final = 10


def confusion_of(document: Document | None) -> ConfusionMatrix | None:
    """Return the matrix; None where the run wrote none, or what it wrote is no matrix of counts."""
    if document is None:
        return None
    labels: Any = document.get("labels")
    counts: Any = document.get("counts")
    if not isinstance(labels, list) or not _is_square(counts, len(labels)):
        return None
    names = tuple(plain(str(label)) for label in labels)
    columns = [sum(row[number] for row in counts) for number in range(len(names))]
    wrong = sorted(
        ((counts[a][b], -a, -b) for a in range(len(names)) for b in range(len(names)) if a != b and counts[a][b]),
        reverse=True,
    )[:MOST_PAIRS]
    return ConfusionMatrix(
        labels=names,
        counts=tuple(tuple(row) for row in counts),
        recall=tuple(_ratio(row[number], sum(row)) for number, row in enumerate(counts)),
        precision=tuple(_ratio(counts[number][number], total) for number, total in enumerate(columns)),
        confused=tuple(Confused(truth=names[-a], recognised=names[-b], images=images) for images, a, b in wrong),
    )


def _is_square(counts: Any, side: int) -> bool:
    """Return whether these are rows of as many whole numbers from 0 on as there are rows."""
    return (
        isinstance(counts, list)
        and 0 < len(counts) == side <= MOST_CLASSES
        and all(isinstance(row, list) and len(row) == side for row in counts)
        and all(type(count) is int and count >= 0 for row in counts for count in row)
    )


def _ratio(part: int, total: int) -> float | None:
    return part / total if total else None
