from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.training.schedule import WarmupCosine, schedule_for


@st.composite
def schedules(draw: st.DrawFn) -> WarmupCosine:
    total = draw(st.integers(1, 300))
    start = draw(st.floats(0, 1))
    return WarmupCosine(
        start=start,
        peak=start + draw(st.floats(1e-6, 10)),
        warmup_steps=draw(st.integers(0, total)),
        total_steps=total,
    )


@given(schedules())
def test_the_rate_climbs_to_its_peak_and_then_falls(schedule: WarmupCosine) -> None:
    rates = [schedule.rate(step) for step in range(schedule.total_steps)]
    assert all(0 <= rate <= schedule.peak * (1 + 1e-9) for rate in rates)
    climb, fall = rates[: schedule.warmup_steps], rates[schedule.warmup_steps :]
    assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(climb))
    assert all(a * (1 + 1e-9) >= b for a, b in itertools.pairwise(fall))
    if climb:
        assert climb[-1] == pytest.approx(schedule.peak)
        assert climb[0] > schedule.start
    if fall:
        assert fall[0] == pytest.approx(schedule.peak)


@given(schedules())
def test_the_rate_is_zero_at_and_after_the_end(schedule: WarmupCosine) -> None:
    assert schedule.rate(schedule.total_steps) == pytest.approx(0, abs=1e-9)
    assert schedule.rate(schedule.total_steps + 5) == pytest.approx(0, abs=1e-9)


def test_the_warm_up_starts_from_the_unscaled_rate() -> None:
    schedule = schedule_for(learning_rate=0.1, peak=0.4, warmup_epochs=1, epochs=10, steps_per_epoch=3)
    assert [schedule.rate(step) for step in range(4)] == pytest.approx([0.2, 0.3, 0.4, 0.4])


def test_a_rate_scaled_down_needs_no_climb() -> None:
    schedule = schedule_for(learning_rate=0.4, peak=0.1, warmup_epochs=1, epochs=10, steps_per_epoch=3)
    assert schedule.rate(0) == pytest.approx(0.1)


@given(st.integers(1, 50), st.integers(1, 50), st.floats(0, 100))
def test_the_warm_up_takes_half_of_a_short_run_at_most(epochs: int, steps: int, warmup: float) -> None:
    schedule = schedule_for(learning_rate=0.1, peak=0.2, warmup_epochs=warmup, epochs=epochs, steps_per_epoch=steps)
    assert schedule.warmup_steps <= schedule.total_steps // 2
    assert schedule.total_steps == epochs * steps


@pytest.mark.parametrize("wrong", [{"peak": 0.0}, {"start": -1.0}, {"total_steps": 0}, {"warmup_steps": 11}])
def test_wrong_values_are_refused(wrong: dict[str, float]) -> None:
    values = {"start": 0.1, "peak": 0.2, "warmup_steps": 1, "total_steps": 10, **wrong}
    with pytest.raises(ValueError, match="must be"):
        WarmupCosine(**values)  # type: ignore[arg-type]  # a mixture of int and float by design
