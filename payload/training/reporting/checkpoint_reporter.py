"""Reports of checkpoints: events, warnings, and what they took of the training."""

from __future__ import annotations

from typing import Final

from payload.settings.groups import OutputSettings
from payload.training.checkpoints.saver import Missed, Written
from payload.training.reporting.step_timer import RunTotals
from payload.training.run_files import Metrics

GROWN: Final = 1.25
"""How many times as long as told before an interval is told again."""


class CheckpointReporter:
    """Report checkpoints on rank 0, and stay silent elsewhere."""

    def __init__(self, metrics: Metrics | None, totals: RunTotals, settings: OutputSettings) -> None:
        """Add up in `totals`; `metrics`: None on other ranks."""
        self._metrics, self._totals, self._settings = metrics, totals, settings
        self._told_s = 60 * settings.checkpoint_minutes

    def written(self, checkpoint: Written, *, interval_s: float) -> None:
        """Report a written checkpoint, and say where the next ones within epochs are rarer than asked for."""
        self._totals.checkpoint_seconds += checkpoint.cost_s
        if not self._metrics:
            return
        self._metrics.event(
            "checkpoint",
            checkpoint=checkpoint.name,
            bytes=checkpoint.bytes,
            waited_s=checkpoint.waited_s,
            copied_s=checkpoint.copied_s,
            written_s=checkpoint.written_s,
            slowed_s=checkpoint.slowed_s,
            interval_s=interval_s,
        )
        if interval_s > self._told_s * GROWN:
            self._told_s = interval_s
            print(
                f"payload.train: a checkpoint takes {checkpoint.cost_s:.1f} s of the training, so within epochs there "
                f"is one every {interval_s / 60:.1f} min, not every {self._settings.checkpoint_minutes:g}: "
                f"{self._settings.checkpoint_cost_percent:g}% of the time at most (--checkpoint-cost-percent)",
                flush=True,
            )

    def missed(self, checkpoint: Missed) -> None:
        """Report a checkpoint that could not be written."""
        self._totals.checkpoints_missed.append(f"{checkpoint.name}: {checkpoint.error}")
        print(
            f"payload.train: warning: no checkpoint {checkpoint.name}: {checkpoint.error}. The training goes on, and "
            "the next one is tried when it is due; until then a fault costs more",
            flush=True,
        )
        if self._metrics:
            self._metrics.event("checkpoint_missed", checkpoint=checkpoint.name, reason=str(checkpoint.error))
