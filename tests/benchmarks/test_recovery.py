"""Facts about what the benchmark of recoveries makes of a run's events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recovery import Goodput, Recovery, done, positions, rate, recovered, table, trained


def step(at: float, epoch: int, number: int) -> dict[str, Any]:
    return {"event": "step", "time": at, "epoch": epoch, "step": number, "steps_per_epoch": 10}


BEGUN = [
    {"event": "start", "time": 100.0, "resumed_from": None},
    step(101.0, 1, 2),
    step(102.0, 1, 6),
    {"event": "epoch", "time": 103.0, "epoch": 1, "total_steps": 10},
    step(104.0, 2, 4),
]
AGAIN = [{"event": "start", "time": 120.0, "resumed_from": "step-00000010"}, step(121.0, 2, 3), step(122.0, 2, 7)]


def test_a_position_is_the_steps_of_all_epochs() -> None:
    assert positions(BEGUN) == [(101.0, 2), (102.0, 6), (103.0, 10), (104.0, 14)]
    assert (rate(BEGUN, 101.0, 103.5), trained(BEGUN, 102.5)) == (4.0, 6)


def test_a_recovery_is_from_the_fault_to_the_first_step_told_after_the_next_start() -> None:
    found = recovered([*BEGUN, *AGAIN], "cut", 110.0, [50.0, 113.0, 190.0])
    assert found == Recovery(fault="cut", noticed_s=3.0, next_step_s=11.0, lost_steps=4)


def test_before_the_next_step_there_is_none() -> None:
    assert recovered([*BEGUN, AGAIN[0]], "cut", 110.0, [113.0]) is None
    assert recovered(BEGUN, "cut", 110.0, [113.0]) is None
    assert recovered([*BEGUN, *AGAIN], "cut", 110.0, [50.0]) is None


def test_one_that_began_anew_has_lost_all() -> None:
    anew = [{"event": "start", "time": 120.0, "resumed_from": None}, step(121.0, 1, 1)]
    found = recovered([*BEGUN, *anew], "cut", 110.0, [113.0])
    assert found is not None and found.lost_steps == 14


def test_what_was_skipped_or_undone_is_no_fault_that_was_done(tmp_path: Path) -> None:
    record = tmp_path / "chaos.jsonl"
    assert done(record) == []
    events = [
        {"time": 1.0, "at_s": 0.0, "kind": "cut", "skipped": "there is none"},
        {"time": 2.0, "at_s": 0.0, "kind": "cut", "what": "cut worker1"},
        {"time": 9.0, "kind": "cut", "target": "worker1", "undone": "cut worker1"},
    ]
    record.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert done(record) == [2.0]


def test_the_table_has_medians_with_their_range_by_fault() -> None:
    several = [Recovery(fault="cut", noticed_s=n, next_step_s=10 * n, lost_steps=round(n)) for n in (1.0, 3.0, 2.0)]
    put = Goodput(way="fab resume", faults=5, seconds=300.0, fraction=0.817)
    assert list(table(several, [put])) == [
        "cut          restart after 2.0 s (1.0 to 3.0), next step after 20.0 s (10.0 to 30.0); 2 steps lost; 3 times",
        "goodput 0.82 with fab resume: 5 ranks killed in 300 s",
    ]


def test_no_step_in_a_window_has_no_rate() -> None:
    with pytest.raises(IndexError):
        rate(BEGUN, 200.0, 300.0)
