"""Train and evaluate one recipe on all ranks. Every function here runs on every rank unless it says otherwise."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable
from typing import Final

import tensorflow as tf

from payload.data.batches import training_batches
from payload.data.parts import Batch, Parts
from payload.errors import PayloadError
from payload.training import distributed
from payload.training.checkpoints import CheckpointStore
from payload.training.config import TrainConfig
from payload.training.distributed import Ranks
from payload.training.evaluation import evaluate
from payload.training.evaluation_step import make_evaluation_step
from payload.training.outcome import write_outcome
from payload.training.progress import Progress, StepSums
from payload.training.records import Figures, Provenance
from payload.training.reporting import Reporter
from payload.training.run import Outcome, Run
from payload.training.schedule import schedule_for
from payload.training.settings import Settings
from payload.training.state import TrainState, new_state, resume
from payload.training.training_step import make_train_step

_ADVICE: Final = "Gradients were not averaged, or a rank runs other code. The run stops; do not use its weights"


class DivergedError(PayloadError, ArithmeticError):
    """Report a loss that is no number any more. Carries `epoch` and `step`, both counted from 1."""

    def __init__(self, loss: float, epoch: int, step: int, learning_rate: float) -> None:
        self.epoch, self.step = epoch, step
        super().__init__(
            f"the loss became {loss} at epoch {epoch}, step {step}, learning rate {learning_rate:g}; "
            "lower --learning-rate or lengthen --warmup-epochs"
        )


def train_and_evaluate(
    config: TrainConfig,
    data: Parts,
    *,
    provenance: Provenance,
    host: str | None,
    started: float,
    stop_requested: Callable[[], bool],
) -> Outcome:
    """Train until the last epoch or until a stop is asked for; rank 0 writes records, checkpoints and the result.

    `started`: unix time at which the process began. Raises PayloadError, on all ranks.
    """
    settings = config.settings
    ranks = distributed.join()
    _set_threads(settings, ranks)
    ranks = distributed.with_hosts(ranks, host)
    distributed.require_agreement(
        ranks, data.digest(), what="data", when="at the start", advice="Give every rank the same files"
    )
    schedule = schedule_for(settings, examples=data.train.examples, ranks=ranks.size)
    state = new_state(settings, data, schedule)
    store = CheckpointStore(directory=config.run_dir / "checkpoints", keep=settings.keep_checkpoints)
    fresh = Progress(recipe=config.recipe.name, seed=settings.seed, global_batch=schedule.phase(0).global_batch)
    progress, resumed_from = distributed.broadcast_value(
        distributed.attempt(ranks, lambda: resume(state, store, fresh, wanted=config.resume, root=ranks.is_root)),
        name="progress",
    )
    distributed.broadcast_variables(list(state.variables.values()))
    _require_equal_weights(ranks, state, "after the broadcast at the start")
    reporter = distributed.attempt(ranks, lambda: Reporter(config.run_dir, active=ranks.is_root, started=started))
    with contextlib.closing(reporter):
        run = Run(
            config=config,
            data=data,
            ranks=ranks,
            state=state,
            store=store,
            reporter=reporter,
            schedule=schedule,
            train_step=make_train_step(state.model, state.optimizer, settings),
            evaluation_step=make_evaluation_step(state.model),
            stop_requested=stop_requested,
        )
        return _train(run, progress, resumed_from, provenance, started)


def _train(run: Run, progress: Progress, resumed_from: str | None, provenance: Provenance, started: float) -> Outcome:
    """Run the epochs that are left, then write the result."""
    _together(run, lambda: run.reporter.start(run, resumed_from))
    train: Figures | None = None
    test: Figures | None = None
    while progress.epoch < run.schedule.epochs:
        began = time.monotonic()
        progress, stopped = _train_epoch(run, progress)
        if stopped:
            _together(run, functools.partial(_save_stopped, run, progress))
            return Outcome(progress=progress, stopped=True)
        train = progress.figures()
        test = evaluate(run, run.data.validation or run.data.test, run.test_view(progress.epoch))
        if not math.isfinite(test.loss):
            rate = run.schedule.rate(progress.epoch, progress.step - 1)
            raise DivergedError(test.loss, progress.epoch + 1, progress.step, rate)
        progress = progress.next_epoch()
        _require_equal_weights(run.ranks, run.state, f"after epoch {progress.epoch}")
        seconds = time.monotonic() - began
        _together(run, functools.partial(_close_epoch, run, progress, train, test, seconds))
    # None after a resumption of a run that lacked nothing but its result.
    if test is None or run.data.validation:
        validation, test = test, evaluate(run, run.data.test, run.test_view(run.schedule.epochs - 1))
    else:
        validation = None
    result = functools.partial(write_outcome, run, progress, train, validation, test, resumed_from, provenance, started)
    _together(run, result)
    return Outcome(progress=progress, stopped=False)


def _together(run: Run, action: Callable[[], None]) -> None:
    """Do on rank 0 what only one rank may do, and fail on all ranks when it fails (collective)."""
    distributed.attempt(run.ranks, action if run.ranks.is_root else lambda: None)


def _train_epoch(run: Run, progress: Progress) -> tuple[Progress, bool]:
    """Take the steps of one epoch that are left; return the new position, and whether a stop was asked for."""
    batches = training_batches(
        run.data.train,
        run.training_view(progress.epoch),
        seed=run.settings.seed,
        epoch=progress.epoch,
        first_step=progress.step,
        global_batch=run.schedule.phase(progress.epoch).global_batch,
        rank=run.ranks.rank,
        ranks=run.ranks.size,
        threads=run.settings.decode_threads,
    )
    clock = run.reporter.clock()
    for batch in batches:
        rate = run.schedule.rate(progress.epoch, progress.step)
        sums = _step(run, batch, rate)
        if not math.isfinite(sums.loss):  # summed over all ranks, so that all of them stop here
            raise DivergedError(sums.loss / batch.batch_size, progress.epoch + 1, progress.step + 1, rate)
        progress = progress.after_step(sums, batch.batch_size)
        if progress.total_steps == 1:
            _require_equal_weights(run.ranks, run.state, "after the first step")
        clock.step(run, progress, batch.batch_size, sums, rate)
        if sums.stops:
            return progress, True
    return progress, False


def _step(run: Run, batch: Batch, rate: float) -> StepSums:
    """Take one step (collective) and return the sums over all ranks."""
    values = run.train_step(
        batch.images, batch.labels, batch.weights, batch.batch_size, rate, run.stop_requested(), batch.skipped
    )
    loss, correct, correct5, stops, skipped = (float(value) for value in values.numpy())
    return StepSums(loss=loss, correct=correct, correct5=correct5, stops=stops, skipped=skipped)


def _close_epoch(run: Run, progress: Progress, train: Figures, test: Figures, seconds: float) -> None:
    """Report an epoch, and write a checkpoint when one is due (rank 0)."""
    run.reporter.epoch(run, progress, train, test, seconds)
    if progress.epoch % run.settings.checkpoint_epochs == 0 or progress.epoch == run.schedule.epochs:
        run.store.save(progress, run.state.arrays())


def _save_stopped(run: Run, progress: Progress) -> None:
    """Write a checkpoint in the middle of an epoch, and say so (rank 0)."""
    path = run.store.save(progress, run.state.arrays())
    run.reporter.stopped(progress, path.name)


def _require_equal_weights(ranks: Ranks, state: TrainState, when: str) -> None:
    distributed.require_agreement(ranks, state.digest(), what="weights", when=when, advice=_ADVICE)


def _set_threads(settings: Settings, ranks: Ranks) -> None:
    """Give this rank its share of the cores. TensorFlow would start as many threads as the host has cores, per rank."""
    threads = settings.intra_op_threads or max(1, len(os.sched_getaffinity(0)) // ranks.local_size)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(settings.inter_op_threads or 1)
