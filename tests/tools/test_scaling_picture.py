"""Facts about the picture of how far networks scale."""

from __future__ import annotations

from cluster.cli.process import PROJECT
from tools.scaling_picture import CASES, NETWORKS, PICTURE, draw, rows


def test_the_guide_has_the_rows_of_the_model_and_the_picture() -> None:
    guide = (PROJECT / "docs" / "plan.md").read_text(encoding="utf-8").splitlines()
    assert [row for row in rows() if row not in guide] == []
    assert PICTURE.is_file()


def test_each_network_has_a_line_in_each_panel_for_each_way_to_reduce() -> None:
    panels = draw().axes
    assert len(panels) == len(CASES)
    assert all(len(axes.lines) == 2 * len(NETWORKS) for axes in panels)
