"""Facts about figures of the model."""

from __future__ import annotations

import pytest

from cluster.planner.evidence import CITED, Figure, exact, within


def test_a_figure_lies_within_its_range() -> None:
    with pytest.raises(ValueError, match=r"a figure of 2 in a range of 3 to 4 \(somewhere\)"):
        Figure(value=2, low=3, high=4, evidence=CITED, source="somewhere")


def test_a_factor_moves_value_and_range_and_a_value_ends_the_range() -> None:
    figure = within(10, 0.5, 2, CITED, "somewhere")
    assert (figure.low, figure.value, figure.high) == (5, 10, 20)
    assert figure.times(3) == within(30, 0.5, 2, CITED, "somewhere")
    assert figure.at(7) == exact(7, CITED, "somewhere")
