"""Facts about the confusion matrix of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.report.confusion_matrix import confusion_of
from tests.cluster.report.recorded_runs import DIGITS, raw, report

WRITTEN: dict[str, Any] = json.loads((DIGITS / "confusion.json").read_text())


def test_it_has_the_counts_of_the_run_and_what_follows_from_them() -> None:
    found = report().confusion
    assert found is not None
    assert (list(found.labels), [list(row) for row in found.counts]) == (WRITTEN["labels"], WRITTEN["counts"])
    assert list(found.recall) == pytest.approx(WRITTEN["recall"])
    assert list(found.precision) == pytest.approx(WRITTEN["precision"])
    pairs = [{"class": p.truth, "recognised_as": p.recognised, "images": p.images} for p in found.confused]
    assert pairs == WRITTEN["confused"]
    right = sum(found.counts[number][number] for number in range(10))
    assert right / sum(map(sum, found.counts)) == raw()["result"]["test_accuracy"]


def test_a_class_without_images_has_no_recall() -> None:
    found = confusion_of({"labels": ["a", "b"], "counts": [[0, 0], [2, 6]]})
    assert found is not None
    assert (found.recall, found.precision) == ((None, 0.75), (0.0, 1.0))


@pytest.mark.parametrize(
    "spoilt",
    [
        None,
        {},
        {"labels": ["a"], "counts": [[1, 2]]},
        {"labels": ["a"], "counts": [["1"]]},
        {"labels": ["a"], "counts": [[-1]]},
        {"labels": ["a"], "counts": [[True]]},
        {"labels": [], "counts": []},
        {"labels": ["a", "b"], "counts": [[1, 2]]},
        {"labels": "ab", "counts": [[1, 2], [3, 4]]},
    ],
)
def test_what_is_no_matrix_of_counts_is_none(spoilt: dict[str, Any] | None) -> None:
    assert confusion_of(spoilt) is None
