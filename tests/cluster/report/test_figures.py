"""Facts about the figures of a report."""

from __future__ import annotations

import dataclasses
import re
from xml.etree import ElementTree

import pytest

from cluster.report.confusion_matrix import confusion_of
from cluster.report.curves import curves_of
from cluster.report.figures import constants, curve_plots, draw_confusion, draw_timeline, run_figures
from cluster.report.model import Curves, EpochPoint
from cluster.report.run_report import report_of
from cluster.report.svg import drawing
from tests.cluster.report.hostile import hostile_run
from tests.cluster.report.recorded_runs import raw, raw_metrics, report


def plots(curves: Curves) -> dict[str, list[tuple[str, list[tuple[float, float]]]]]:
    return {
        plot.name: [(line.label, list(line.points)) for line in plot.lines if line.points]
        for plot in curve_plots(curves)
    }


def test_the_lines_go_through_the_points_of_the_record() -> None:
    epochs = [event for event in raw_metrics() if event["event"] == "epoch"]
    steps = [event for event in raw_metrics() if event["event"] == "step"]
    found = plots(report().curves)
    for name, measure in (("loss", "loss"), ("accuracy", "accuracy")):
        lines = dict(found[name])
        assert lines["training"] == [(event["epoch"], event[f"train_{measure}"]) for event in epochs]
        assert lines["test"] == [(event["epoch"], event[f"test_{measure}"]) for event in epochs]
        assert [value for _, value in lines["steps"]] == [event[measure] for event in steps]
    ((_, rates),) = found["learning-rate"]
    assert [value for _, value in rates] == [event["learning_rate"] for event in steps]
    ((_, speeds),) = found["images-per-second"]
    assert speeds == [(event["epoch"], event["images_per_s"] / 2) for event in epochs]


def test_batch_and_image_size_are_drawn_where_they_change_and_told_where_not() -> None:
    assert not {"batch", "image-size"} & plots(report().curves).keys()
    assert constants(report().curves) == "In every epoch a global batch of 64 images and images of 28 pixels."
    changing = Curves(
        epochs=tuple(EpochPoint(epoch=n, at_s=n, global_batch=64 * n, image_size=128 + n) for n in range(1, 4))
    )
    assert plots(changing)["batch"] == [("global batch", [(1, 64), (2, 128), (3, 192)])]
    assert plots(changing)["image-size"] == [("image size, pixels", [(1, 129), (2, 130), (3, 131)])]
    assert constants(changing) == ""


def test_a_run_without_an_epoch_has_no_plots() -> None:
    assert curve_plots(Curves()) == []
    assert constants(Curves()) == ""


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


def test_curves_of_a_long_run_stay_small() -> None:
    metrics = [
        {
            "event": "step",
            "time": 1.0 * n,
            "epoch": 1 + n // 1000,
            "step": n % 1000,
            "steps_per_epoch": 1000,
            "loss": 1 / (n + 1),
        }
        for n in range(50_000)
    ]
    ((_, points),) = plots(curves_of(metrics, began=0, nodes=1))["loss"]
    assert len(points) == 300
