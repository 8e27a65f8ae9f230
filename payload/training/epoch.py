"""The steps of one epoch. Every function here runs on every rank."""

from __future__ import annotations

import math
from typing import Final

from agent.errors import ReportedError
from payload.data.pipeline.batches import training_batches
from payload.data.types import Batch
from payload.training import distributed
from payload.training.batch_feed import Supply, empty_batch
from payload.training.checkpoints.saving import save
from payload.training.context import Run
from payload.training.distributed import Ranks
from payload.training.progress import Progress, StepSums
from payload.training.state import TrainState

_ADVICE: Final = "Gradients were not averaged, or a rank runs other code. The run stops; do not use its weights"


class DivergedError(ReportedError, ArithmeticError):
    """Report a loss that is no number any more. Carries `epoch` and `step`, both counted from 1."""

    def __init__(self, loss: float, epoch: int, step: int, learning_rate: float) -> None:
        self.epoch, self.step = epoch, step
        super().__init__(
            f"the loss became {loss} at epoch {epoch}, step {step}, learning rate {learning_rate:g}; "
            "lower --learning-rate or lengthen --warmup-epochs, in a new run or with --resume from the last checkpoint"
        )


def train_epoch(run: Run, progress: Progress) -> tuple[Progress, bool]:
    """Take the steps of one epoch that are left; return the new position, and whether a stop was asked for."""
    phase, view = run.schedule.phase(progress.epoch), run.training_view(progress.epoch)
    batches = training_batches(
        run.data.train,
        view,
        seed=run.settings.seed,
        epoch=progress.epoch,
        first_step=progress.step,
        global_batch=phase.global_batch,
        rank=run.ranks.rank,
        ranks=run.ranks.size,
        threads=run.settings.decode_threads,
    )
    slots = -(-phase.global_batch // run.ranks.size)
    supply = Supply(
        batches,
        epoch=progress.epoch,
        first_step=progress.step,
        steps=run.schedule.steps(progress.epoch),
        empty=empty_batch(view.size, run.data.train.channels, slots),
    )
    clock = run.reporter.clock()
    troubles: list[ReportedError] = []

    def check() -> None:
        supply.check()
        for trouble in troubles:
            raise trouble

    for batch in clock.awaited(run.reporter.profiler.awaited(supply)):
        rate = run.schedule.rate(progress.epoch, progress.step)
        # What is wrong with one rank is told with the sums of the step, so that no rank waits for it in vain.
        stop = bool(supply.error or troubles or run.writer.failed or run.stop_requested())
        with run.reporter.profiler.step(progress.total_steps + 1):
            sums = _step(run, batch, rate, stop)
        if sums.stops:
            distributed.attempt(run.ranks, check)
        if not math.isfinite(sums.loss):  # summed over all ranks, so that all of them stop here
            raise DivergedError(sums.loss / batch.batch_size, progress.epoch + 1, progress.step + 1, rate)
        progress = progress.after_step(sums, batch.batch_size)
        if progress.total_steps == 1:
            require_equal_weights(run.ranks, run.state, "after the first step")
        try:
            run.reporter.step(run, progress, batch.batch_size, sums, rate)
            if run.ranks.is_root and progress.step < supply.steps and not sums.stops and run.cadence.within_epoch():
                save(run, progress)
        except ReportedError as error:
            troubles.append(error)
        if sums.stops:
            return progress, True
    distributed.attempt(run.ranks, check)
    return progress, False


def _step(run: Run, batch: Batch, rate: float, stop: bool) -> StepSums:
    """Take one step (collective) and return the sums over all ranks."""
    values = run.train_step(batch.images, batch.labels, batch.weights, batch.batch_size, rate, stop, batch.skipped)
    loss, correct, correct5, stops, skipped = (float(value) for value in values.numpy())
    return StepSums(loss=loss, correct=correct, correct5=correct5, stops=stops, skipped=skipped)


def require_equal_weights(ranks: Ranks, state: TrainState, when: str) -> None:
    """Compare all variables over all ranks, bit for bit (collective). Raises RanksDisagreeError."""
    distributed.require_agreement(ranks, state.digest(), what="weights", when=when, advice=_ADVICE)
