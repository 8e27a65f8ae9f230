"""Facts about the figures of a report."""

from __future__ import annotations

import dataclasses
import re
from xml.etree import ElementTree

import pytest

from cluster.report.confusion_matrix import confusion_of
from cluster.report.figures import draw_confusion, draw_timeline, run_figures
from cluster.report.run_report import report_of
from cluster.report.svg import drawing
from tests.cluster.report.hostile import hostile_run
from tests.cluster.report.recorded_runs import raw, raw_metrics, report


def test_each_figure_says_in_words_what_it_shows() -> None:
    said = {figure.name: figure.description for figure in run_figures(report())}
    epochs = [event for event in raw_metrics() if event["event"] == "epoch"]
    training, test = (
        f"{name} from {epochs[0][key]:.4g} to {epochs[-1][key]:.4g}"
        for name, key in (("training", "train_loss"), ("test", "test_loss"))
    )
    assert said["loss"] == f"Loss: {training}; {test}."
    took = raw()["state"]["updated"] - raw()["state"]["started"]
    assert said["timeline"].startswith(f"{took:.0f} s on 2 nodes: preparing the nodes")
    accuracy = raw()["result"]["test_accuracy"]
    assert said["confusion"].startswith(f"{accuracy:.2%} of 359 test images recognised. Most often confused: ")


def test_a_hostile_run_is_drawn_as_well_formed_svg() -> None:
    for figure in run_figures(report_of(hostile_run())):
        assert ElementTree.fromstring(figure.svg).tag == "{http://www.w3.org/2000/svg}svg"


def test_the_timeline_shows_a_line_for_each_node_up_to_a_bound() -> None:
    timeline = report().timeline
    many = dataclasses.replace(
        timeline, nodes=tuple(dataclasses.replace(timeline.nodes[0], name=f"n{k}") for k in range(99))
    )
    with drawing():
        svg = draw_timeline(many).svg
    assert len(re.findall(r">n\d+</text>", svg)) == 24


@pytest.mark.parametrize("classes", [2, 20, 21, 300])
def test_a_confusion_matrix_of_any_size_is_drawn_small_enough(classes: int) -> None:
    counts = [[57 if a == b else (a + b) % 7 == 0 for b in range(classes)] for a in range(classes)]
    matrix = confusion_of(
        {"labels": [f"class {n}" for n in range(classes)], "counts": [list(map(int, row)) for row in counts]}
    )
    assert matrix is not None
    with drawing():
        svg = draw_confusion(matrix).svg
    assert (">57</text>" in svg) == (classes <= 20)
    assert len(svg) < 600_000
