"""Horovod's settings: the effect of each, and the rejected values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.spec.horovod import CYCLE_MS, GLOO, MPI, WAKE_MS, KnobError, Knobs, cycle_ms


@given(step=st.floats(0.01, 1e6), ranks=st.integers(2, 512))
def test_chosen_cycle_time_is_cheapest_within_its_bounds(step: float, ranks: int) -> None:
    def cost(cycle: float) -> float:
        return WAKE_MS[GLOO] * (ranks - 1) * step / cycle + cycle / 2

    chosen = cycle_ms(step, ranks)
    low, high = CYCLE_MS
    assert low <= chosen <= high
    others = [other for other in (low, high, chosen / 2, chosen * 2) if low <= other <= high]
    assert all(cost(chosen) <= cost(other) * 1.01 for other in others)


@given(step=st.floats(2, 5e4))
def test_over_mpi_a_cycle_costs_less_and_is_shorter(step: float) -> None:
    low, high = CYCLE_MS
    over_gloo, over_mpi = cycle_ms(step, 2, GLOO), cycle_ms(step, 2, MPI)
    assert over_mpi < over_gloo or over_gloo in (low, high)


def test_autotuner_chooses_all_omitted_settings() -> None:
    assert Knobs(autotune=True).flags("/r") == ["--autotune", "--autotune-log-file", "/r/autotune.csv"]
    assert Knobs(autotune=True, cycle_time_ms=2.5).flags("/r")[:2] == ["--cycle-time-ms", "2.5"]


def test_each_setting_becomes_a_horovodrun_flag() -> None:
    knobs = Knobs(
        fusion_threshold_mb=0,
        cycle_time_ms=50,
        cache_capacity=2**30,
        hierarchical_allreduce=True,
        hierarchical_allgather=True,
        timeline=True,
    )
    assert knobs.flags("/r") == [
        *("--fusion-threshold-mb", "0", "--cycle-time-ms", "50", "--cache-capacity", "1073741824"),
        *("--hierarchical-allreduce", "--hierarchical-allgather", "--timeline-filename", "/r/timeline.json"),
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [("fusion_threshold_mb", -1), ("cycle_time_ms", 0.0), ("cycle_time_ms", math.nan), ("cache_capacity", 1 << 40)],
)
def test_invalid_value_is_rejected_with_its_flag(field: str, value: float) -> None:
    with pytest.raises(KnobError, match=f"--{field.replace('_', '-')} = .*must be") as caught:
        Knobs(**{field: value})  # type: ignore[arg-type]  # a bad value is the point
    assert caught.value.flag == f"--{field.replace('_', '-')}"


@pytest.mark.horovod
def test_horovodrun_accepts_every_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    from horovod.runner.launch import parse_args

    one = Knobs(fusion_threshold_mb=64, cycle_time_ms=2.5, cache_capacity=8, hierarchical_allreduce=True, timeline=True)
    two = Knobs(hierarchical_allgather=True, autotune=True)
    for knobs in (one, two):
        monkeypatch.setattr("sys.argv", ["horovodrun", "-np", "1", *knobs.flags("/r"), "true"])
        parsed = parse_args()
        assert parsed.command == ["true"]
        assert bool(parsed.autotune) == knobs.autotune
        assert parsed.fusion_threshold_mb == knobs.fusion_threshold_mb
        assert parsed.cycle_time_ms == knobs.cycle_time_ms
        assert parsed.timeline_filename == ("/r/timeline.json" if knobs.timeline else None)
