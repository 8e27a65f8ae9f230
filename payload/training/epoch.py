"""Run the training steps of one epoch. Every function in this module runs on every rank."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Final

from agent.errors import ReportedError
from payload.data.dataset import Batch
from payload.data.pipeline.batches import training_batches
from payload.settings.learning_rate import LOWER_RATES
from payload.training import distributed
from payload.training.batch_feed import BatchFeed, empty_batch
from payload.training.checkpoints.saver import CheckpointSaver
from payload.training.distributed import Ranks
from payload.training.evaluation import Evaluator
from payload.training.plan import TrainingPlan
from payload.training.progress import Progress, StepSums
from payload.training.reporting.reporter import Reporter
from payload.training.train_state import TrainState


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """The plan of a run, and the objects that execute it on this rank."""

    plan: TrainingPlan
    state: TrainState
    train_step: Callable[..., Any]
    evaluator: Evaluator
    reporter: Reporter
    saver: CheckpointSaver
    """Saves checkpoints on rank 0."""
    stop_requested: Callable[[], bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingEnd:
    """The end of a run: completed, or stopped with a checkpoint to resume from."""

    progress: Progress
    stopped: bool


_ADVICE: Final = (
    "Gradients were not averaged, or a rank runs different code. The run stops. Do not resume it or use its weights; "
    "start a new run, and if the same rank differs again, replace its node with `fab replace`"
)


class DivergedError(ReportedError, ArithmeticError):
    """The loss is no longer finite. `epoch` and `step` are counted from 1."""

    def __init__(self, loss: float, epoch: int, step: int, learning_rate: float) -> None:
        self.epoch, self.step = epoch, step
        super().__init__(
            f"the loss became {loss} at epoch {epoch}, step {step}, learning rate {learning_rate:g}; {LOWER_RATES}"
        )


def train_epoch(context: TrainingContext, progress: Progress) -> tuple[Progress, bool]:
    """Train for the remaining steps of one epoch (collective); return the position, and whether a stop was requested.

    Steps are reported, and rank 0 saves checkpoints that are due by the clock. After the first step of a run, the ranks
    compare their weights. Raises DivergedError if the loss is no longer finite, RanksDisagreeError if weights differ,
    and ReportedError on all ranks if a rank fails.
    """
    plan, reporter, saver = context.plan, context.reporter, context.saver
    ranks, schedule = plan.ranks, plan.schedule
    phase, view = schedule.phase(progress.epoch), plan.training_view(progress.epoch)
    batches = training_batches(
        plan.data.train,
        view,
        seed=plan.settings.seed,
        epoch=progress.epoch,
        first_step=progress.step,
        global_batch=phase.global_batch,
        rank=ranks.rank,
        ranks=ranks.size,
        threads=plan.settings.decode_threads,
    )
    slots = -(-phase.global_batch // ranks.size)
    feed = BatchFeed(
        batches,
        epoch=progress.epoch,
        first_step=progress.step,
        steps=schedule.steps(progress.epoch),
        empty=empty_batch(view.size, plan.data.train.channels, slots),
    )
    timer, own_s = reporter.start_timer(), 0.0
    saver.begin_epoch()
    errors: list[ReportedError] = []

    def check() -> None:
        feed.check()
        for error in errors:
            raise error

    for batch in timer.awaited(reporter.profiler.awaited(feed)):
        rate = schedule.rate(progress.epoch, progress.step)
        # A rank reports its error with the sums of the step, so that no rank waits for it.
        stop = bool(feed.error or errors or saver.failed or context.stop_requested())
        with reporter.profiler.step(progress.total_steps + 1):
            sums = _step(context, batch, rate, stop, own_s)
        own_s = timer.last_wait_s + sums.pass_s
        if sums.stops:
            distributed.attempt(ranks, check)
        if not math.isfinite(sums.loss):  # summed over all ranks, so that all of them stop here
            raise DivergedError(sums.loss / batch.batch_size, progress.epoch + 1, progress.step + 1, rate)
        progress = progress.after_step(sums, batch.batch_size)
        if progress.total_steps == 1:
            require_equal_weights(ranks, context.state, "after the first step")
        try:
            reporter.step(progress, batch.batch_size, sums, rate)
            if ranks.is_root:
                saver.after_step(progress, is_last=progress.step == feed.steps or sums.stops > 0)
        except ReportedError as error:
            errors.append(error)
        if sums.stops:
            return progress, True
    distributed.attempt(ranks, check)
    return progress, False


def _step(context: TrainingContext, batch: Batch, rate: float, stop: bool, own_s: float) -> StepSums:
    """Run one training step; return the sums over all ranks (collective).

    `own_s`: seconds of this rank's own part of the previous step.
    """
    values = context.train_step(
        batch.images, batch.labels, batch.weights, batch.batch_size, rate, stop, batch.skipped, own_s
    )
    loss, correct, correct5, stops, skipped, *seconds = values.numpy().tolist()
    *own_s_of_all, pass_s = seconds or [0.0]
    return StepSums(
        loss=loss,
        correct=correct,
        correct5=correct5,
        stops=stops,
        skipped=skipped,
        own_s=tuple(own_s_of_all),
        pass_s=pass_s,
    )


def require_equal_weights(ranks: Ranks, state: TrainState, when: str) -> None:
    """Compare the variables of all ranks, bit for bit, except the seeds of dropout (collective).

    Raises RanksDisagreeError on all ranks if they differ. `when`: for its message, such as "after epoch 3".
    """
    distributed.require_agreement(ranks, state.digest(), what="weights", when=when, advice=_ADVICE)
