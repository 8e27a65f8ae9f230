"""Facts about the curves of a run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.report.curves import curves_of, thinned
from cluster.report.model import StepPoint
from tests.cluster.report.recorded_runs import RESUMED, raw, raw_metrics, report


def test_each_epoch_has_the_figures_of_its_event() -> None:
    events = [event for event in raw_metrics() if event["event"] == "epoch"]
    began = raw()["state"]["started"]
    for point, event in zip(report().curves.epochs, events, strict=True):
        assert point.epoch == event["epoch"]
        assert point.at_s == pytest.approx(event["time"] - began)
        for name in ("train_loss", "test_loss", "train_accuracy", "test_accuracy", "seconds", "images_per_s"):
            assert getattr(point, name) == event[name]
        assert (point.global_batch, point.image_size) == (event["global_batch"], event["image_size"]) == (64, 28)
        assert point.images_per_s_per_node == event["images_per_s"] / 2


def test_steps_lie_between_the_epochs() -> None:
    events = [event for event in raw_metrics() if event["event"] == "step"]
    steps = report().curves.steps
    assert [step.loss for step in steps] == [event["loss"] for event in events]
    assert [step.epoch for step in steps] == [event["epoch"] - 1 + event["step"] / 23 for event in events]
    assert steps[0].learning_rate == 0.05


def test_what_a_resumed_run_passes_twice_counts_once() -> None:
    found = report(RESUMED).curves
    assert [point.epoch for point in found.epochs] == list(range(1, 61))
    assert all(one.epoch < other.epoch for one, other in zip(found.steps, found.steps[1:], strict=False))


def event(name: str, **values: Any) -> dict[str, Any]:
    return {"event": name, "time": 100.0, **values}


def test_of_an_epoch_that_was_trained_twice_the_last_time_counts() -> None:
    told = [event("epoch", epoch=number, train_loss=loss) for number, loss in ((1, 3.0), (2, 2.0), (3, 1.0), (2, 1.5))]
    assert [(p.epoch, p.train_loss) for p in curves_of(told, began=0, nodes=1).epochs] == [(1, 3.0), (2, 1.5)]


def test_with_images_held_back_the_curves_are_of_these() -> None:
    told = [event("start", validation_images=5), event("epoch", epoch=1, validation_accuracy=0.5, test_accuracy=0.9)]
    found = curves_of(told, began=0, nodes=1)
    assert (found.evaluated, found.epochs[0].test_accuracy) == ("validation", 0.5)


def test_an_older_record_has_the_batch_of_its_start() -> None:
    found = curves_of([event("start", global_batch=64), event("epoch", epoch=1)], began=0, nodes=1)
    assert (found.epochs[0].global_batch, found.epochs[0].image_size) == (64, None)


@pytest.mark.parametrize(
    "spoilt",
    [
        event("epoch", epoch="1"),
        {"event": "epoch", "epoch": 1},
        event("step", epoch=1, step=1, steps_per_epoch=0),
        event("step", epoch=1, step=1, steps_per_epoch=-3),
        event("step", epoch=None, step=1, steps_per_epoch=3),
        event("nobody knows this one"),
    ],
)
def test_events_without_a_place_on_the_axis_are_left_out(spoilt: dict[str, Any]) -> None:
    found = curves_of([spoilt], began=0, nodes=1)
    assert (found.epochs, found.steps) == ((), ())


@given(count=st.integers(1, 400), most=st.integers(1, 50))
def test_thinning_keeps_order_ends_and_means(count: int, most: int) -> None:
    points = [StepPoint(epoch=float(number), at_s=2.0 * number, loss=float(number)) for number in range(count)]
    found = thinned(points, most)
    assert len(found) == min(count, most)
    assert all(one.epoch < other.epoch for one, other in itertools.pairwise(found))
    assert all(point.loss == pytest.approx(point.epoch) for point in found)
    assert 0 <= found[0].epoch <= found[-1].epoch <= count - 1


def test_the_mean_of_points_without_a_value_is_none() -> None:
    assert thinned([StepPoint(epoch=0, at_s=0), StepPoint(epoch=1, at_s=1)], 1)[0].loss is None
