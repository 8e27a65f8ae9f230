"""The plot of a plan."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from cluster.errors import DeepcdkError, UsageError
from cluster.planner.candidates import Candidate, mark_frontier
from cluster.planner.figure import Range
from cluster.planner.run_time import Parts
from cluster.plots.plan import check_path, draw_candidates
from cluster.plots.style import save


def candidate(kind: str, nodes: int, minutes: float, usd: float | None) -> Candidate:
    """Return a candidate with this time and cost."""
    seconds = Range(low=0.8, value=1, high=1.4).times(60 * minutes)
    cost = None if usd is None else Range(low=0.8, value=1, high=1.4).times(usd)
    return Candidate(instance_type=kind, nodes=nodes, seconds=seconds, parts=Parts(), usd=cost, spot_usd=None)


EVERY = mark_frontier([candidate("a", 1, 100, 10), candidate("a", 2, 60, 12), candidate("b", 1, 90, 30)])


def test_each_type_is_a_line_and_each_candidate_a_point_with_its_number(tmp_path: Path) -> None:
    figure = draw_candidates([*EVERY, candidate("c", 1, 5, None)], EVERY[1], "a plan")
    (axes,) = figure.axes
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    drawn = {line.get_label(): np.asarray(line.get_xdata()).tolist() for line in lines}
    assert drawn == {"a": [100, 60], "b": [90], "chosen": [60]}
    assert isinstance(axes.collections[0], LineCollection)
    ranges = [np.asarray(segment)[:, 0].tolist() for segment in axes.collections[0].get_segments()]
    assert ranges == [pytest.approx([80, 140]), pytest.approx([48, 84])]
    assert [(text.get_text(), text.get_fontweight()) for text in axes.texts] == [
        ("1", "bold"),
        ("2", "bold"),
        ("1", "normal"),
    ]


@pytest.mark.parametrize("chosen", EVERY)
def test_circle_of_the_choice_covers_no_number(chosen: Candidate, tmp_path: Path) -> None:
    figure = draw_candidates(EVERY, chosen, "a plan")
    save(figure, tmp_path / "plan.png")  # computes the layout
    (axes,) = figure.axes
    (circle,) = (line for line in axes.lines if line.get_label() == "chosen")
    (middle,) = axes.transData.transform(circle.get_xydata())
    radius = (circle.get_markersize() + circle.get_markeredgewidth()) / 2 * figure.dpi / 72
    for text in axes.texts:
        box = text.get_window_extent()
        nearest = np.clip(middle, [box.x0, box.y0], [box.x1, box.y1])
        assert np.hypot(*(nearest - middle)) >= radius


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_plot_is_written_as_reproducible_png_and_svg(suffix: str, tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        path = tmp_path / "new" / f"{name}{suffix}"
        save(draw_candidates(EVERY, None, "a plan"), path)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]
    if suffix == ".svg":
        assert ElementTree.fromstring(texts[0]).tag.endswith("svg")
    else:
        assert texts[0].startswith(b"\x89PNG")


def test_unknown_format_and_unwritable_path_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--plot = 'plan.pdf': must end with .png or .svg"):
        check_path("plan.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(DeepcdkError, match="cannot write"):
        save(draw_candidates(EVERY, None, "a plan"), tmp_path / "file" / "plan.png")
