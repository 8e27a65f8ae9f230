from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.settings import SettingError, Settings
from payload.settings.image_phases import ImagePhase
from payload.training.schedule import global_batch, schedule_for

PLAIN = Settings(epochs=10, global_batch=64, base_batch=32, learning_rate=0.1, warmup_epochs=2)


def test_rate_grows_with_the_batch_and_the_warm_up_starts_unscaled() -> None:
    schedule = schedule_for(PLAIN, examples=640, ranks=1)
    assert schedule.steps(0) == 10
    assert schedule.rate(0, 0) == pytest.approx(0.1)
    assert schedule.rate(1, 0) == pytest.approx(0.15)
    assert schedule.rate(2, 0) == pytest.approx(0.2) == pytest.approx(schedule.peak)
    assert schedule.rate(6, 0) == pytest.approx(0.1)


def test_given_warm_up_rate_does_not_depend_on_batch() -> None:
    settings = dataclasses.replace(PLAIN, warmup_rate=0.001)
    for batch in (16, 64, 640):
        schedule = schedule_for(dataclasses.replace(settings, global_batch=batch), examples=640, ranks=1)
        assert schedule.rate(0, 0) == pytest.approx(0.001)


def test_without_base_batch_rate_is_as_given() -> None:
    schedule = schedule_for(dataclasses.replace(PLAIN, base_batch=0), examples=640, ranks=1)
    assert [schedule.rate(epoch, 0) for epoch in (0, 1, 2)] == pytest.approx([0.1, 0.1, 0.1])


def test_without_phases_all_epochs_have_the_runs_own_images() -> None:
    settings = dataclasses.replace(PLAIN, image_size=96, smallest_crop=0.3, rectangular_validation=True)
    only = ImagePhase(start=0, size=96, global_batch=64, smallest_crop=0.3, rectangular=True)
    assert schedule_for(settings, examples=640, ranks=1).phases == (only,)


def test_short_trial_reaches_its_peak() -> None:
    schedule = schedule_for(dataclasses.replace(PLAIN, epochs=1, warmup_epochs=5), examples=640, ranks=1)
    assert schedule.rate(0, 5) == pytest.approx(0.2)


@given(st.integers(1, 5000), st.integers(1, 512), st.integers(1, 16), st.integers(1, 5))
def test_steps_cover_every_image_once_an_epoch(examples: int, batch: int, ranks: int, epochs: int) -> None:
    settings = Settings(epochs=epochs, batch_per_rank=batch, global_batch_limit=1000)
    size = global_batch(settings, ranks)
    assert size == min(batch * ranks, 1000)
    if size > examples:
        with pytest.raises(SettingError, match=f"more than the {examples} training images"):
            schedule_for(settings, examples=examples, ranks=ranks)
        return
    schedule = schedule_for(settings, examples=examples, ranks=ranks)
    assert (schedule.steps(0) - 1) * size < examples <= schedule.steps(0) * size
    assert schedule.total_steps == epochs * schedule.steps(0)
    assert schedule.images_left(0, 0) == epochs * examples
    assert schedule.images_left(epochs - 1, schedule.steps(0)) == 0
    assert schedule.images_left(epochs, 0) == 0


@given(st.integers(1, 64), st.integers(1, 64))
def test_peak_is_proportional_to_the_batch(batch: int, factor: int) -> None:
    def peak(size: int) -> float:
        return schedule_for(dataclasses.replace(PLAIN, global_batch=size), examples=1 << 20, ranks=1).peak

    assert peak(batch * factor) == pytest.approx(factor * peak(batch))


PHASES = "0:128/512/0.08,6:224/256,10:288/128/0.5/rectangular"


def test_phases_change_size_batch_crop_and_rate() -> None:
    settings = Settings(
        epochs=12, image_phases=PHASES, smallest_crop=0.2, base_batch=256, learning_rate=1.0, decay="constant"
    )
    schedule = schedule_for(settings, examples=1000, ranks=3)
    assert [schedule.phase(epoch).size for epoch in (0, 5, 6, 9, 10, 11)] == [128, 128, 224, 224, 288, 288]
    assert [schedule.phase(epoch).smallest_crop for epoch in (0, 6, 10)] == [0.08, 0.2, 0.5]
    assert [schedule.phase(epoch).rectangular for epoch in (0, 6, 10)] == [False, False, True]
    assert [schedule.steps(epoch) for epoch in (0, 6, 10)] == [2, 4, 8]
    assert [schedule.rate(epoch, 0) for epoch in (0, 6, 10)] == pytest.approx([2, 1, 0.5])
    assert schedule.peak == pytest.approx(2)


def test_augmented_epochs_come_after_the_plain_ones() -> None:
    settings = Settings(epochs=20, augmented_epochs=25)
    schedule = schedule_for(settings, examples=100, ranks=1)
    assert (settings.total_epochs, schedule.epochs, schedule.augmented_from) == (45, 45, 20)
    assert schedule_for(Settings(epochs=20), examples=100, ranks=1).augmented_from == 0
    assert schedule_for(Settings(epochs=20, augmented_epochs=0), examples=100, ranks=1).augmented_from == 20


def test_remaining_images_decrease_by_batch_until_end_of_epoch() -> None:
    schedule = schedule_for(dataclasses.replace(PLAIN, epochs=2), examples=100, ranks=1)
    assert [schedule.images_left(0, step) for step in range(3)] == [200, 136, 100]
    assert [schedule.images_left(1, step) for step in range(3)] == [100, 36, 0]


def test_batch_larger_than_data_is_rejected_with_its_flag() -> None:
    assert schedule_for(PLAIN, examples=64, ranks=1).steps(0) == 1
    with pytest.raises(SettingError) as plain:
        schedule_for(PLAIN, examples=63, ranks=1)
    with pytest.raises(SettingError) as phases:
        schedule_for(Settings(epochs=12, image_phases=PHASES), examples=511, ranks=1)
    assert (plain.value.flag, phases.value.flag) == ("--global-batch", "--image-phases")


def test_rates_by_phase_are_not_scaled_by_the_batch() -> None:
    settings = Settings(epochs=4, global_batch=64, base_batch=32, rate_phases="0-2:0..1,2-:0.5")
    schedule = schedule_for(settings, examples=640, ranks=1)
    assert [schedule.rate(epoch, 0) for epoch in range(4)] == pytest.approx([0, 0.5, 0.5, 0.5])
    assert schedule.rate(1, 5) == pytest.approx(0.75)
    assert (schedule.base_batch, schedule.peak) == (0, 0.5)


def test_largest_step_is_that_of_the_largest_phase() -> None:
    assert schedule_for(Settings(epochs=12, image_phases=PHASES), examples=1000, ranks=1).largest_batch == 512


def test_run_of_one_epoch_has_peak_of_its_warm_up() -> None:
    schedule = schedule_for(dataclasses.replace(PLAIN, epochs=1, warmup_epochs=5), examples=640, ranks=1)
    assert schedule.peak == pytest.approx(0.2)
