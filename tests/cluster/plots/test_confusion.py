"""The plot of a confusion matrix."""

from __future__ import annotations

import pytest

from cluster.plots.confusion import draw_confusion
from cluster.report.confused_classes import confusion_of


@pytest.mark.parametrize("classes", [2, 20, 21, 300])
def test_matrix_of_any_size_is_drawn_small_enough(classes: int) -> None:
    counts = [[57 if a == b else int((a + b) % 7 == 0) for b in range(classes)] for a in range(classes)]
    matrix = confusion_of({"labels": [f"class {n}" for n in range(classes)], "counts": counts})
    assert matrix is not None
    svg = draw_confusion(matrix).svg
    assert (">57</text>" in svg) == (">class 1</text>" in svg) == (classes <= 20)
    assert len(svg) < 600_000
