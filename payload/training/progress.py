"""The position of a run, and the results of its steps. Standard library only."""

from __future__ import annotations

import dataclasses

from payload.training.reporting.result_file import Scores


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSums:
    """The results of one step, summed over all ranks unless noted otherwise."""

    loss: float
    correct: float
    """Number of correct predictions."""
    correct5: float
    """Number of images with the correct class in the top five."""
    stops: float
    """Number of ranks on which a stop was requested."""
    skipped: float
    """Number of damaged records that were skipped on request."""
    own_s: tuple[float, ...] = ()
    """Seconds of each rank's own part of the previous step, by rank. Empty if there is only one rank."""
    pass_s: float = 0.0
    """Seconds of this rank's own forward and backward pass, not summed. 0 if there is only one rank."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The position of a run, and the properties that a run must share to resume there."""

    recipe: str
    seed: int
    global_batch: int
    epoch: int = 0
    """Number of completed epochs."""
    step: int = 0
    """Number of completed steps in the current epoch."""
    loss_sum: float = 0.0
    """Sum of the training losses in the current epoch."""
    correct: int = 0
    """Correct predictions of training images in the current epoch."""
    correct5: int = 0
    """Training images with the correct class in the top five, in the current epoch."""
    seen: int = 0
    """Training images seen in the current epoch, without skipped records."""
    skipped: int = 0
    """Damaged records skipped since the start of the run."""
    total_steps: int = 0
    """Steps completed since the start of the run."""

    def after_step(self, sums: StepSums, images: int) -> Progress:
        """Return the position after one more step on `images` images over all ranks."""
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
        """Return the position at the start of the next epoch."""
        return dataclasses.replace(self, epoch=self.epoch + 1, step=0, loss_sum=0.0, correct=0, correct5=0, seen=0)

    def figures(self) -> Scores:
        """Return the mean training loss and accuracies of the current epoch so far; 0 if no image has been seen."""
        seen = max(self.seen, 1)  # 0 if all records so far were damaged and skipped on request
        return Scores(loss=self.loss_sum / seen, accuracy=self.correct / seen, top5_accuracy=self.correct5 / seen)
