"""What `fab train` reports about the cost of a fault."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cluster.runs.fault_cost import describe_of_program, describe_of_recipe, lost_s
from payload.settings import Settings

SETTINGS = Settings(epochs=90, checkpoint_epochs=1, checkpoint_minutes=5, checkpoint_cost_percent=2)


def told(run_s: float | None = 90 * 1200.0, usd: float | None = 7.2, restarts: int = 3, **changes: Any) -> str:
    settings = dataclasses.replace(SETTINGS, **changes)
    return describe_of_recipe(settings, epochs=90, run_s=run_s, usd_per_hour=usd, restarts=restarts)


def test_loss_is_limited_by_the_checkpoint_interval_at_the_workers_price() -> None:
    assert told() == (
        "a fault costs at most 5:00 of training, $0.60 for its workers, and a restart; more if a checkpoint "
        "takes over 6.0 s of training time"
    )
    assert "takes over" not in told(checkpoint_cost_percent=0)
    assert "of training, price unknown, and a restart" in told(usd=None)


@pytest.mark.parametrize(
    ("changes", "run_s", "seconds"),
    [
        ({}, None, 300),
        ({}, 90 * 60.0, 60),  # an epoch is shorter
        ({"checkpoint_epochs": 3}, 90 * 60.0, 180),
        ({"checkpoint_minutes": 0}, 90 * 1200.0, 1200),
        ({"checkpoint_minutes": 0, "checkpoint_epochs": 500}, 90.0, 90),  # never more than the run
        ({"checkpoint_minutes": 0}, None, None),
    ],
)
def test_loss_is_limited_by_minutes_epochs_and_length_of_run(
    changes: dict[str, Any], run_s: float | None, seconds: float | None
) -> None:
    assert lost_s(dataclasses.replace(SETTINGS, **changes), epochs=90, run_s=run_s) == seconds


def test_unlimited_loss_is_reported() -> None:
    said = told(run_s=None, checkpoint_minutes=0, checkpoint_epochs=4)
    assert (
        "There is a checkpoint every 4 epochs, and the time of an epoch is unknown. To limit the loss, set --" in said
    )
    assert "a checkpoint every epoch, and" in told(run_s=None, checkpoint_minutes=0)


def test_fault_without_restarts_fails_the_run() -> None:
    assert "and stops the run (--restarts 0) until `fab resume` continues it" in told(restarts=0)
    assert describe_of_program(0).startswith("a fault stops the run (--restarts 0)")
    assert describe_of_program(3).startswith("a fault costs whatever the program has not saved: the program is started")
