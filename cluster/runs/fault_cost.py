"""Estimate and describe, before a run starts, how much training a machine fault would cost at most."""

from __future__ import annotations

from cluster.terminal.units import duration
from payload.settings import Settings


def lost_s(settings: Settings, *, epochs: int, run_s: float | None) -> float | None:
    """Return the maximum training time that a recipe loses to a machine fault, s; None if it has no upper limit.

    `run_s` is the longest expected time of the run with its `epochs`, or None if that is unknown.
    """
    bounds = [60 * settings.checkpoint_minutes] if settings.checkpoint_minutes else []
    if run_s is not None:
        bounds.append(run_s * min(1.0, settings.checkpoint_epochs / epochs))
    return min(bounds, default=None)


def describe_of_recipe(
    settings: Settings, *, epochs: int, run_s: float | None, usd_per_hour: float | None, restarts: int
) -> str:
    """Return a sentence on what a machine fault costs a recipe at most.

    `run_s` is the longest expected time of the run with its `epochs`, None if it is unknown. `usd_per_hour` is the
    price of the workers, None if it is unknown. `restarts` is the number of automatic restarts.
    """
    goes_on = "and a restart" if restarts else "and stops the run (--restarts 0) until `fab resume` continues it"
    seconds = lost_s(settings, epochs=epochs, run_s=run_s)
    if seconds is None:
        every = f"{settings.checkpoint_epochs} epochs" if settings.checkpoint_epochs > 1 else "epoch"
        return (
            f"a fault costs the training since the last checkpoint, {goes_on}. There is a checkpoint every {every}, "
            "and the time of an epoch is unknown. To limit the loss, set --checkpoint-minutes"
        )
    price = "price unknown" if usd_per_hour is None else f"${usd_per_hour * seconds / 3600:,.2f} for its workers"
    told = f"a fault costs at most {duration(seconds)} of training, {price}, {goes_on}"
    percent, minutes = settings.checkpoint_cost_percent, settings.checkpoint_minutes
    if percent and seconds == 60 * minutes:
        told += f"; more if a checkpoint takes over {0.6 * minutes * percent:.1f} s of training time"
    return told


def describe_of_program(restarts: int) -> str:
    """Return a sentence on what a machine fault costs a user program. `restarts`: number of automatic restarts."""
    kept = "whatever the program has not saved"
    if restarts:
        return f"a fault costs {kept}: the program is started again in the same directory"
    return f"a fault stops the run (--restarts 0), and costs {kept}"
