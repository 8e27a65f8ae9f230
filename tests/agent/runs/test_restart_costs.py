"""The cost of restarts: repeated steps and time without steps, from the records of the ranks."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.runs.restart_costs import RestartCost, restart_costs


def start(time: float, resumed_from: str | None = None) -> dict[str, Any]:
    return {"event": "start", "time": time, "steps_per_epoch": 10, "resumed_from": resumed_from}


def step(time: float, epoch: int, number: int) -> dict[str, Any]:
    return {"event": "step", "time": time, "epoch": epoch, "step": number, "steps_per_epoch": 10}


def epoch(time: float, number: int) -> dict[str, Any]:
    return {"event": "epoch", "time": time, "epoch": number, "total_steps": 10 * number}


FIRST = [start(100.0), step(101.0, 1, 5), epoch(102.0, 1), step(102.5, 2, 3)]


def restart(time: float) -> dict[str, Any]:
    return {"time": time, "for": "a node"}


def test_restart_costs_the_steps_since_the_checkpoint_and_the_time_until_the_next_one() -> None:
    again = [start(110.0, "checkpoints/step-00000010"), {"event": "checkpoint", "time": 111.0}, step(112.0, 2, 1)]
    assert restart_costs([*FIRST, *again], [restart(104.0)]) == [RestartCost(went_on_at=10, steps_lost=3, seconds=9.5)]


def test_resumed_run_loses_no_steps_and_restarted_run_all() -> None:
    (kept,) = restart_costs([*FIRST, start(110.0, "step-00000013"), step(111.0, 2, 4)], [restart(104.0)])
    (anew,) = restart_costs([*FIRST, start(110.0), step(111.0, 1, 1)], [restart(104.0)])
    assert (kept.steps_lost, anew.steps_lost, anew.went_on_at) == (0, 13, 0)


def test_restart_without_steps_has_no_recovery_time() -> None:
    assert restart_costs(FIRST, [restart(104.0)]) == [RestartCost()]
    assert restart_costs([*FIRST, start(110.0, "step-00000010")], [restart(104.0)]) == [
        RestartCost(went_on_at=10, steps_lost=3)
    ]


def test_fault_before_ranks_start_is_counted_with_next_restart() -> None:
    both = [restart(104.0), restart(106.0)]
    assert restart_costs([*FIRST, start(110.0, "step-00000010"), step(112.0, 2, 1)], both) == [
        RestartCost(),
        RestartCost(went_on_at=10, steps_lost=3, seconds=9.5),
    ]


def test_recovery_time_counts_for_last_restart_before_first_step() -> None:
    events = [*FIRST, start(110.0, "step-00000010"), start(120.0, "step-00000010"), step(121.0, 2, 1)]
    first, second = restart_costs(events, [restart(104.0), restart(112.0)])
    assert first == RestartCost(went_on_at=10)
    assert second == RestartCost(went_on_at=10, steps_lost=3, seconds=18.5)


def test_program_can_report_only_its_steps() -> None:
    events = [
        {"event": "start", "time": 1.0, "total_steps": 0},
        {"event": "step", "time": 2.0, "total_steps": 7},
        {"event": "start", "time": 5.0, "total_steps": 4},
        {"event": "step", "time": 6.0, "total_steps": 5},
    ]
    assert restart_costs(events, [restart(3.0)]) == [RestartCost(went_on_at=4, steps_lost=3, seconds=4.0)]


def test_costs_are_unknown_without_events() -> None:
    assert restart_costs([], [restart(3.0), {"for": "no time"}]) == [RestartCost(), RestartCost()]


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)
KEYS = st.sampled_from(["event", "time", "epoch", "step", "total_steps", "resumed_from"])
EVENTS = st.lists(
    st.dictionaries(KEYS, ANYTHING | st.sampled_from(["start", "step", "epoch", "step-1", 1.0, 2.0, 3.0]), max_size=6),
    max_size=8,
)


@given(events=EVENTS, restarts=st.lists(st.dictionaries(st.just("time"), ANYTHING, max_size=1), max_size=3))
def test_any_events_give_a_cost_for_each_restart(events: list[dict[str, Any]], restarts: list[dict[str, Any]]) -> None:
    found = restart_costs(events, restarts)
    assert len(found) == len(restarts)
    assert all(each.steps_lost is None or each.steps_lost >= 0 for each in found)
