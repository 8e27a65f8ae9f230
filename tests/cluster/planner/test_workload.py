"""Facts about workloads."""

from __future__ import annotations

from cluster.planner.fast_ai_2018 import DAWNBENCH

RUN = DAWNBENCH[3].workload


def test_a_run_as_far_as_an_epoch_ends_within_the_phase_of_that_epoch() -> None:
    cut = RUN.until(20)
    assert [phase.epochs for phase in cut.phases] == [6, 10, 3, 1]
    assert cut.epochs == 20


def test_no_epoch_and_more_than_there_are_mean_all() -> None:
    assert RUN.until(0) == RUN
    assert RUN.until(1000) == RUN
