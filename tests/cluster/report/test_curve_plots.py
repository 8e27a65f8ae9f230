"""Facts about the plots of a run's curves."""

from __future__ import annotations

from cluster.report.curve_plots import constants, curve_plots
from cluster.report.curves import curves_of
from cluster.report.model import Curves, EpochPoint
from tests.cluster.report.recorded_runs import raw_metrics, report


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
