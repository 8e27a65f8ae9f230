"""GPU speeds: rates by the usual definitions, and medians after an uncounted warm-up round."""

from __future__ import annotations

import pytest

from agent.preflight import allreduce
from agent.preflight.allreduce import speeds


def test_rates_follow_their_definitions() -> None:
    # 20 products of 8192 x 8192 matrices: 2 * 8192**3 operations each.
    assert allreduce.matmul_tflops(0.022) == pytest.approx(999.6, abs=0.1)
    # nccl-tests: 1 GiB over 8 ranks in 5 ms is 214.7 GB/s, and 1.75 times that on the bus.
    assert allreduce.bus_gb_s(1 << 30, 8, 0.005) == pytest.approx(375.8, abs=0.1)
    assert allreduce.bus_gb_s(1 << 30, 1, 0.005) == 0


def test_the_first_turn_does_not_count_and_one_slow_turn_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, took = [0.0], iter([9.0, 0.1, 5.0, 0.2])
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def work() -> None:
        clock[0] += next(took)

    assert allreduce.median_s(work) == pytest.approx(0.2)
    assert next(took, None) is None


def test_one_rank_has_no_allreduce_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allreduce, "median_s", lambda work: work() or 0.5)
    asked: list[str] = []
    both = speeds(lambda: asked.append("multiply"), lambda: asked.append("add up"), 1 << 30, 2)
    assert (sorted(both), asked) == (["bus_gb_s", "matmul_tflops"], ["multiply", "add up"])
    assert sorted(speeds(lambda: None, lambda: None, 1 << 30, 1)) == ["matmul_tflops"]
