"""The position of a run, and the sums of its steps. Standard library only."""

from __future__ import annotations

import dataclasses

from payload.training.run_files import Scores


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSums:
    """The results of one step, summed over all ranks where nothing else is said."""

    loss: float
    correct: float
    """Images recognised."""
    correct5: float
    """Images whose class is among the five likeliest."""
    stops: float
    """Ranks on which a stop was requested."""
    skipped: float
    """Damaged records left out on request."""
    own_s: tuple[float, ...] = ()
    """How long each rank's own part of the step before took, by rank, s; nothing where there is one rank."""
    pass_s: float = 0.0
    """How long this rank's own forward and backward pass took, not summed; 0 where there is one rank."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The position of a run, and what identifies the run that may resume there."""

    recipe: str
    seed: int
    global_batch: int
    epoch: int = 0
    """Epochs completed."""
    step: int = 0
    """Steps completed within the next epoch."""
    loss_sum: float = 0.0
    """Sum of the training losses of that epoch's steps so far."""
    correct: int = 0
    """Training images of that epoch recognised so far."""
    correct5: int = 0
    """Training images of that epoch recognised so far among five."""
    seen: int = 0
    """Training images of that epoch seen so far."""
    skipped: int = 0
    """Damaged records left out since the beginning of the run."""
    total_steps: int = 0
    """Steps completed since the beginning of the run."""

    def after_step(self, sums: StepSums, images: int) -> Progress:
        """Return the position after one more step on so many images over all ranks."""
        return dataclasses.replace(
            self,
            step=self.step + 1,
            total_steps=self.total_steps + 1,
            loss_sum=self.loss_sum + sums.loss,
            correct=self.correct + round(sums.correct),
            correct5=self.correct5 + round(sums.correct5),
            seen=self.seen + images - round(sums.skipped),
            skipped=self.skipped + round(sums.skipped),
        )

    def next_epoch(self) -> Progress:
        """Return the position at the beginning of the next epoch."""
        return dataclasses.replace(self, epoch=self.epoch + 1, step=0, loss_sum=0.0, correct=0, correct5=0, seen=0)

    def figures(self) -> Scores:
        """Return the means over the steps of the epoch so far; there must be one."""
        seen = max(self.seen, 1)  # 0 where every record of the epoch was damaged, and left out on request
        return Scores(loss=self.loss_sum / seen, accuracy=self.correct / seen, top5_accuracy=self.correct5 / seen)
