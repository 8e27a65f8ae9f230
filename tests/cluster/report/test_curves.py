"""The curves of a run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.report.curves import StepPoint, curves_of, thinned
from tests.cluster.report.recorded_runs import RESUMED, raw, raw_metrics, report


def test_each_epoch_and_each_step_has_the_values_of_its_event() -> None:
    began, curves = raw()["state"]["started"], report().curves
    for point, event in zip(curves.epochs, raw_metrics(kind="epoch"), strict=True):
        assert point.at_s == pytest.approx(event["time"] - began)
        assert (point.evaluation_loss, point.evaluation_accuracy) == (event["test_loss"], event["test_accuracy"])
        names = ("epoch", "train_loss", "train_accuracy", "seconds", "images_per_s")
        for name in (*names, "global_batch", "image_size", "data_wait_s"):
            assert getattr(point, name) == event[name]
        assert point.images_per_s_per_node == event["images_per_s"] / 2
    for step, event in zip(curves.steps, raw_metrics(kind="step"), strict=True):
        assert step.epoch == event["epoch"] - 1 + event["step"] / 23
        assert (step.loss, step.accuracy, step.learning_rate) == (
            event["loss"],
            event["accuracy"],
            event["learning_rate"],
        )


def event(name: str, **values: Any) -> dict[str, Any]:
    return {"event": name, "time": 100.0, **values}


def test_last_repetition_counts_in_resumed_run() -> None:
    found = report(RESUMED).curves
    assert [point.epoch for point in found.epochs] == list(range(1, 61))
    assert all(one.epoch < other.epoch for one, other in itertools.pairwise(found.steps))
    told = [event("epoch", epoch=number, train_loss=loss) for number, loss in ((1, 3.0), (2, 2.0), (3, 1.0), (2, 1.5))]
    assert [(p.epoch, p.train_loss) for p in curves_of(told, began=0, nodes=1).epochs] == [(1, 3.0), (2, 1.5)]


def test_run_with_a_validation_split_shows_its_values() -> None:
    told = [event("start", validation_images=5), event("epoch", epoch=1, validation_accuracy=0.5, test_accuracy=0.9)]
    found = curves_of(told, began=0, nodes=1)
    assert (found.evaluated, found.epochs[0].evaluation_accuracy) == ("validation", 0.5)


@pytest.mark.parametrize(
    "spoilt",
    [
        event("epoch", epoch="1"),
        {"event": "epoch", "epoch": 1},
        event("step", epoch=1, step=1, steps_per_epoch=0),
        event("step", epoch=1, step=1, steps_per_epoch=-3),
        event("step", epoch=None, step=1, steps_per_epoch=3),
    ],
)
def test_events_without_a_valid_position_are_left_out(spoilt: dict[str, Any]) -> None:
    found = curves_of([spoilt], began=0, nodes=1)
    assert (found.epochs, found.steps) == ((), ())


@given(count=st.integers(1, 400), most=st.integers(1, 50))
def test_thinning_keeps_order_and_means(count: int, most: int) -> None:
    points = [StepPoint(epoch=float(number), at_s=2.0 * number, loss=float(number)) for number in range(count)]
    found = thinned(points, most)
    assert len(found) == min(count, most)
    assert all(one.epoch < other.epoch for one, other in itertools.pairwise(found))
    assert all(point.loss == pytest.approx(point.epoch) and point.accuracy is None for point in found)
    assert 0 <= found[0].epoch <= found[-1].epoch <= count - 1
