from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.training.imagenet_fast import SCHEDULES, FastSchedule, RatePhase, UnknownNodesError, schedule_for_nodes

# The run's own lr; then epoch:rate as a multiple of it, as published. 14- is just before epoch 14, where a line ends.
RATES = {
    16: (1.88, "0:1 3:1.5 6:2 15.5:2 16:1 19-:1 19:0.3 31-:0.3 31:0.03 37-:0.03 37:0.02 38-:0.02 38:0.002 50:0.002"),
    8: (1.92, "0:1 3:1.5 6:2 11:2 12.5:1.5 14-:1 14:1 17:1 20:0.5875 23:0.175 26:0.09625 29-:0.0175 29:0.01 36:0.001"),
    4: (2.0, "0:1 3:1.5 6:2 11:2 12:1.5 13-:1 13:0.875 16:0.875 20:0.48125 24:0.0875 28-:0.00875 28:0.005 30:0.0005"),
    1: (1.0, "0:1 3.5:1.5 7:2 10:1.125 13-:0.25 13:0.4375 17.5:0.240625 22:0.04375 25-:0.004375 25:0.0025 28:0.00025"),
}
# Epoch, size, batch per GPU.
IMAGES = {
    16: [(0, 128, 64), (5, 128, 64), (6, 128, 128), (16, 224, 64), (19, 224, 192), (36, 224, 192), (37, 288, 128)],
    8: [(0, 128, 128), (6, 128, 256), (14, 224, 128), (17, 224, 224), (28, 224, 224), (29, 288, 128)],
    4: [(0, 128, 256), (6, 128, 512), (13, 224, 224), (27, 224, 224), (28, 288, 128)],
    1: [(0, 128, 512), (12, 128, 512), (13, 224, 224), (24, 224, 224), (25, 288, 128), (28, 288, 128)],
}


@pytest.mark.parametrize("nodes", RATES)
def test_rates_are_the_published_ones_point_by_point(nodes: int) -> None:
    schedule = schedule_for_nodes(nodes)
    lr, points = RATES[nodes]
    for point in points.split():
        epoch, factor = point.split(":")
        at = float(epoch.rstrip("-")) - (1e-9 if epoch.endswith("-") else 0)
        assert schedule.rate(at) == pytest.approx(lr * float(factor), rel=1e-6), f"epoch {epoch}"


@pytest.mark.parametrize("nodes", IMAGES)
def test_sizes_and_batches_are_the_published_ones(nodes: int) -> None:
    schedule = schedule_for_nodes(nodes)
    for epoch, size, batch in IMAGES[nodes]:
        phase = schedule.image_phase(epoch)
        assert (phase.size, phase.batch_per_gpu) == (size, batch), f"epoch {epoch}"
        assert phase.smallest_crop == {128: 0.08, 224: 0.087, 288: 0.5}[size]
        assert phase.rectangular_validation == (size == 288)


def test_outcomes_are_the_published_ones() -> None:
    outcomes = [(run.nodes, run.epochs, run.top5_accuracy, divmod(run.seconds, 60)) for run in SCHEDULES]
    assert outcomes == [
        (1, 28, 0.93, (109, 12)),
        (4, 30, 0.9305, (29, 44)),
        (8, 36, 0.93, (19, 4)),
        (16, 50, 0.9304, (16, 8)),
    ]


def test_the_global_batch_is_that_of_all_gpus() -> None:
    assert schedule_for_nodes(16).global_batch(0) == 8192
    assert schedule_for_nodes(16).global_batch(20) == 192 * 128
    assert schedule_for_nodes(1).global_batch(0) == 4096
    assert schedule_for_nodes(1).steps(0) == 313  # 1,281,167 / 4,096 = 312.8


@pytest.mark.parametrize("nodes", [0, 2, 32])
def test_nodes_without_a_published_run_are_refused(nodes: int) -> None:
    with pytest.raises(UnknownNodesError, match=f"no schedule was published for {nodes} nodes; published: 1, 4, 8, 16"):
        schedule_for_nodes(nodes)


@given(st.sampled_from(SCHEDULES), st.floats(0, 1))
def test_rates_stay_between_the_ends_of_the_run_and_twice_its_first(schedule: FastSchedule, part: float) -> None:
    rate = schedule.rate(part * schedule.epochs)
    assert schedule.rates[-1].last * (1 - 1e-9) <= rate <= 2 * schedule.rate(0) * (1 + 1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: str(schedule.nodes))
def test_an_epoch_outside_the_run_is_refused(schedule: FastSchedule) -> None:
    for epoch in (-0.1, schedule.epochs + 0.1, float("nan")):
        with pytest.raises(ValueError, match=f"the run has epochs 0 to {schedule.epochs}"):
            schedule.rate(epoch)
        with pytest.raises(ValueError, match=f"the run has epochs 0 to {schedule.epochs}"):
            schedule.image_phase(epoch)


def test_phases_with_gaps_are_refused() -> None:
    good = schedule_for_nodes(1)
    gap = (RatePhase(start=0, end=7, first=1, last=2), RatePhase(start=8, end=28, first=2, last=0))
    with pytest.raises(ValueError, match="each phase must start where the one before ends"):
        dataclasses.replace(good, rates=gap)
    with pytest.raises(ValueError, match="each phase must start where the one before ends"):
        dataclasses.replace(good, rates=())
    with pytest.raises(ValueError, match="phases must start at 0 and rise, before 28"):
        dataclasses.replace(good, images=good.images[::-1])
    with pytest.raises(ValueError, match="phases must start at 0 and rise, before 28"):
        dataclasses.replace(good, images=good.images[1:])
