"""The confusion matrix and the misclassified images of a run."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from cluster.report.confused_classes import confusion_of, mistakes_of
from tests.cluster.report.recorded_runs import DIGITS, raw, report

MATRIX: dict[str, Any] = json.loads((DIGITS / "confusion.json").read_text())
IMAGES: list[dict[str, Any]] = json.loads((DIGITS / "mistakes.json").read_text())["images"]


def test_matrix_has_counts_of_run_and_derived_values() -> None:
    found = report().confusion
    assert found is not None
    assert (list(found.labels), [list(row) for row in found.counts]) == (MATRIX["labels"], MATRIX["counts"])
    assert list(found.recall) == pytest.approx(MATRIX["recall"])
    assert list(found.precision) == pytest.approx(MATRIX["precision"])
    pairs = [{"class": p.truth, "recognized_as": p.recognized, "images": p.images} for p in found.confused]
    assert pairs == MATRIX["confused"]
    right = sum(found.counts[number][number] for number in range(10))
    assert right / sum(map(sum, found.counts)) == raw()["result"]["test_accuracy"]


def test_class_without_images_has_no_recall() -> None:
    found = confusion_of({"labels": ["a", "b"], "counts": [[0, 0], [2, 6]]})
    assert found is not None and (found.recall, found.precision) == ((None, 0.75), (0.0, 1.0))


@pytest.mark.parametrize(
    ("labels", "counts"),
    [
        (["a"], [[1, 2]]),
        (["a"], [["1"]]),
        (["a"], [[-1]]),
        (["a"], [[True]]),
        ([], []),
        (["a", "b"], [[1, 2]]),
        ("ab", [[1, 2], [3, 4]]),
        (["a"] * 2001, [[0] * 2001] * 2001),
    ],
)
def test_only_a_square_matrix_of_counts_is_accepted(labels: Any, counts: Any) -> None:
    assert confusion_of({"labels": labels, "counts": counts}) is None
    assert confusion_of(None) is None


def test_mistakes_are_the_images_that_the_run_wrote() -> None:
    found = [(each.truth, each.recognized, each.confidence, each.png_base64) for each in report().mistakes]
    assert found == [(each["class"], each["recognized_as"], each["confidence"], each["png"]) for each in IMAGES] != []
    assert len(mistakes_of({"images": IMAGES[:1] * 500})) == 24
    assert (mistakes_of(None), mistakes_of({"images": "many"})) == ((), ())
    assert len(mistakes_of({"images": [IMAGES[0] | {"confidence": each} for each in (0, 1)]})) == 2


def sized(width: int, height: int) -> str:
    """Return the first image with another size in its header."""
    png = base64.b64decode(IMAGES[0]["png"])
    return base64.b64encode(png[:16] + struct.pack(">II", width, height) + png[24:]).decode()


@pytest.mark.parametrize(
    "spoilt",
    [
        {"png": None},
        {"png": 'AAAA"><script>'},
        {"png": base64.b64encode(b"<svg onload=alert(1)>").decode()},
        {"png": base64.b64encode(base64.b64decode(IMAGES[0]["png"])[:20]).decode()},
        {"png": sized(30_000, 28)},
        {"png": sized(28, 0)},
        {"png": base64.b64encode(base64.b64decode(IMAGES[0]["png"]) + bytes(40_000)).decode()},
        {"confidence": "0.5"},
        {"confidence": 1.5},
    ],
)
def test_anything_but_a_small_png_with_a_probability_is_left_out(spoilt: dict[str, Any]) -> None:
    assert mistakes_of({"images": [IMAGES[0] | spoilt, IMAGES[0]]}) == mistakes_of({"images": IMAGES[:1]}) != ()
