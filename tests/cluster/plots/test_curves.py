"""The plots of curves."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.plots.curves import DIGITS, MAX_MARKS, Line, Plot, comparison_plots, draw_plot, run_plots, stroke
from cluster.plots.style import Drawn
from cluster.report.comparison import MAX_NAME, compare
from cluster.report.curves import Curves, EpochPoint, curves_of
from cluster.report.sweep import MAX_CURVES
from tests.cluster.report.recorded_runs import RESUMED, another, raw_metrics, report


def plots(curves: Curves) -> dict[str, dict[str, list[tuple[float, float]]]]:
    return {plot.name: {line.label: list(line.points) for line in plot.lines} for plot in run_plots(curves)}


def test_lines_go_through_the_points_of_the_record() -> None:
    epochs, steps, found = raw_metrics(kind="epoch"), raw_metrics(kind="step"), plots(report().curves)
    for name in ("loss", "accuracy"):
        assert found[name]["training"] == [(event["epoch"], event[f"train_{name}"]) for event in epochs]
        assert found[name]["test"] == [(event["epoch"], event[f"test_{name}"]) for event in epochs]
        assert [value for _, value in found[name]["steps"]] == [event[name] for event in steps]
    assert [value for _, value in found["learning-rate"]["learning rate"]] == [e["learning_rate"] for e in steps]
    speeds = [(event["epoch"], event["images_per_s"] / 2) for event in epochs]
    assert found["images-per-second"]["images/s per node"] == speeds
    times = [point.at_s for point in report().curves.epochs]
    assert [time for time, _ in found["accuracy-over-time"]["test"]] == times


def test_batch_and_image_size_are_drawn_only_if_they_change() -> None:
    assert not {"batch", "image-size"} & plots(report().curves).keys()
    epochs = [EpochPoint(epoch=n, at_s=n, global_batch=64 * n, image_size=128 + n) for n in range(1, 4)]
    changing = plots(Curves(epochs=tuple(epochs)))
    assert changing["batch"] == {"global batch": [(1, 64), (2, 128), (3, 192)]}
    assert changing["image-size"] == {"image size, pixels": [(1, 129), (2, 130), (3, 131)]}
    assert run_plots(Curves()) == []


NAME = "augmented-epochs=100"


@pytest.mark.parametrize("length", [3, 12, 13, MAX_NAME])
def test_legend_stays_inside_its_figure(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(Drawn, "of", lambda figure, **_: figures.append(figure))
    lines = tuple(Line(label=f"{n}{NAME[1:length]}", points=((1, 0.1), (2, 0.2)), style=n) for n in range(6))
    draw_plot(Plot(name="loss", title="Loss", lines=lines, form=DIGITS))
    (figure,) = figures
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_curve_of_a_long_run_stays_small() -> None:
    step = {"event": "step", "steps_per_epoch": 1000, "loss": 0.5}
    metrics = [{**step, "time": n, "epoch": 1 + n // 1000, "step": n % 1000} for n in range(50_000)]
    assert len(plots(curves_of(metrics, began=0, nodes=1))["loss"]["steps"]) == 300


def test_repeats_are_one_line_with_a_band() -> None:
    comparison = compare([another(1, accuracy=0.9), another(2, accuracy=0.96, seed=2), report(RESUMED)])
    found = {plot.name: plot for plot in comparison_plots(comparison)}
    assert list(found) == ["accuracy", "accuracy-over-time", "loss", "images-per-second", "learning-rate"]
    lines = [(line.label, line.style, len(line.points), len(line.spread)) for line in found["accuracy"].lines]
    assert lines == [("A, mean of 2", 0, 20, 20), ("B", 1, 60, 0)]


def test_only_a_short_line_that_is_not_faint_has_marks() -> None:
    def marks(count: int, *, faint: bool) -> int:
        line = Line(label="loss", points=[(n, 1.0 + n % 2) for n in range(count)], faint=faint)
        return draw_plot(Plot(name="loss", title="Loss", form=DIGITS, lines=[line])).svg.count("<use ")

    plain = marks(MAX_MARKS + 1, faint=False)
    assert marks(MAX_MARKS, faint=False) >= plain + MAX_MARKS
    assert marks(MAX_MARKS, faint=True) == marks(MAX_MARKS + 1, faint=True) <= plain


def test_figure_has_a_description_and_the_axes_of_its_values() -> None:
    loss, accuracy, timed = (draw_plot(plot) for plot in run_plots(report().curves)[:3])
    first, last = (raw_metrics(kind="epoch")[n] for n in (0, -1))
    ends = "; ".join(f"{name} from {first[key]:.4g} to {last[key]:.4g}" for name, key in
                     (("training", "train_loss"), ("test", "test_loss")))  # fmt: skip
    assert loss.description == f"Loss: {ends}."
    assert ">0.05</text>" in loss.svg and ">0.02</text>" in loss.svg, "a logarithmic axis"
    assert ">100%</text>" in accuracy.svg and ">epoch</text>" in accuracy.svg
    assert ">40 s</text>" in timed.svg and ">time since the start</text>" in timed.svg


def test_all_curves_of_a_sweep_look_different() -> None:
    assert len({stroke(style) for style in range(MAX_CURVES)}) == MAX_CURVES
