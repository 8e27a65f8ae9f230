"""The plots of a sweep: one series per combination of the other parameters, and readable axes."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from cluster.plots.sweep import positions, series_of, sweep_plots
from cluster.report.run_report import TEST_ACCURACY
from tests.cluster.report.recorded_runs import MARKUP
from tests.cluster.report.test_sweep import swept


def test_other_parameters_make_series_while_they_are_few() -> None:
    few = series_of(swept({"lr": ["0.1", "0.2"], "depth": ["2", "4"]}), "lr", TEST_ACCURACY)
    assert [(points.label, [*points.by_value]) for points in few] == [
        ("depth=2", ["0.1", "0.2"]), ("depth=4", ["0.1", "0.2"]),
    ]  # fmt: skip
    (many,) = series_of(swept({"lr": ["0.1", "0.2"], "depth": [f"{n}" for n in range(7)]}), "lr", TEST_ACCURACY)
    assert (many.label, [len(found) for found in many.by_value.values()]) == ("", [14, 14])


def test_numbers_have_their_place_on_the_axis_and_other_values_are_in_order() -> None:
    assert positions(["10", "0.5"]) == ({"10": 10.0, "0.5": 0.5}, True)
    assert positions(["a", "2", "nan"]) == ({"a": 0.0, "2": 1.0, "nan": 2.0}, False)
    assert positions(["nan"])[1] is False


def test_each_parameter_has_plots_of_accuracy_and_time_that_are_valid_xml() -> None:
    drawn = sweep_plots(swept({"lr": ["0.0001", "1"], MARKUP[:20]: [MARKUP, "b"], "same": ["x"]}))
    assert [plot.title.partition(" by ")[0] for plot in drawn] == ["Test accuracy", "Time"] * 2
    assert len({plot.name for plot in drawn}) == 4
    for plot in drawn:
        ET.fromstring(plot.svg)
        assert "<script" not in plot.svg
