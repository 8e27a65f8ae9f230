"""How the benchmark of recoveries evaluates a run's events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.recovery import RECIPE, Figures, Recovery, fault_times, positions, recovered
from payload.recipes.train_config import TrainConfig


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


def test_position_counts_steps_of_all_epochs() -> None:
    assert positions(BEGUN) == [(101.0, 2), (102.0, 6), (103.0, 10), (104.0, 14)]


def test_recovery_ends_at_first_step_after_restart() -> None:
    found = recovered([*BEGUN, *AGAIN], "cut", 110.0, [50.0, 113.0, 190.0])
    assert found == Recovery(fault="cut", noticed_s=3.0, next_step_s=11.0, lost_steps=4)
    assert str(found) == "cut: restart after 3.0 s, next step after 11.0 s, 4 steps lost"


def test_no_recovery_time_before_the_next_step() -> None:
    assert recovered([*BEGUN, AGAIN[0]], "cut", 110.0, [113.0]) is None
    assert recovered(BEGUN, "cut", 110.0, [113.0]) is None
    assert recovered([*BEGUN, *AGAIN], "cut", 110.0, [50.0]) is None


def test_restart_from_scratch_loses_all_steps() -> None:
    anew = [{"event": "start", "time": 120.0, "resumed_from": None}, step(121.0, 1, 1)]
    found = recovered([*BEGUN, *anew], "cut", 110.0, [113.0])
    assert found is not None and found.lost_steps == 14


def test_steps_lost_by_an_earlier_attempt_are_counted_once() -> None:
    later = [{"event": "start", "time": 140.0, "resumed_from": "step-00000012"}, step(141.0, 2, 4)]
    found = recovered([*BEGUN, step(105.0, 3, 9), *AGAIN, *later], "cut", 130.0, [133.0])
    assert found is not None and found.lost_steps == 5


def test_recipe_uses_the_settings(tmp_path: Path) -> None:
    config = TrainConfig.from_argv(["--run-dir", str(tmp_path), "--recipe", "digits", *RECIPE])
    assert (config.settings.epochs, config.settings.checkpoint_minutes) == (100000, 0.1)


def test_skipped_and_undone_faults_do_not_count(tmp_path: Path) -> None:
    record = tmp_path / "chaos.jsonl"
    assert fault_times(record) == []
    events = [
        {"time": 1.0, "at_s": 0.0, "kind": "cut", "skipped": "there is none"},
        {"time": 2.0, "at_s": 0.0, "kind": "cut", "what": "cut worker1"},
        {"time": 9.0, "kind": "cut", "target": "worker1", "undone": "cut worker1"},
    ]
    record.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert fault_times(record) == [2.0]


def test_figures_are_median_and_range_per_fault() -> None:
    several = [Recovery(fault="cut", noticed_s=n, next_step_s=10 * n, lost_steps=round(n)) for n in (1.0, 3.0, 2.0)]
    figures = Figures(recoveries=several, missed=["kill-host"])
    assert list(figures.lines()) == [
        "cut          restart after 2.0 s (1.0 to 3.0), next step after 20.0 s (10.0 to 30.0); 2 steps lost; 3 times",
        "kill-host    the run did not train again",
    ]
    assert figures.results(4) == {"cut, next step, 4 hosts": [20.0]}
