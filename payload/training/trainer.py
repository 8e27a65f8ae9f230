"""Train and evaluate one recipe on all ranks. Every function here runs on every rank unless it says otherwise."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable
from typing import Final

import tensorflow as tf

from payload.data.batches import training_batches
from payload.data.parts import Batch, Parts
from payload.errors import PayloadError
from payload.training import distributed
from payload.training.arrangement import Arrangement
from payload.training.cadence import Cadence
from payload.training.checkpoint_writer import CheckpointWriter
from payload.training.checkpoints import CheckpointStore, name_of
from payload.training.config import TrainConfig
from payload.training.continuation import Beginning, begin, store_for
from payload.training.distributed import Ranks
from payload.training.evaluation import confusion_counts, evaluate
from payload.training.evaluation_step import make_evaluation_step
from payload.training.outcome import write_outcome
from payload.training.products import write_products
from payload.training.profiling import Span
from payload.training.progress import Progress, StepSums
from payload.training.records import Figures, Provenance
from payload.training.reporting import Reporter
from payload.training.run import Outcome, Run
from payload.training.sameness import lasting
from payload.training.schedule import Schedule, schedule_for
from payload.training.state import TrainState, new_state
from payload.training.supply import Supply, empty_batch
from payload.training.training_step import make_train_step

_ADVICE: Final = "Gradients were not averaged, or a rank runs other code. The run stops; do not use its weights"


class DivergedError(PayloadError, ArithmeticError):
    """Report a loss that is no number any more. Carries `epoch` and `step`, both counted from 1."""

    def __init__(self, loss: float, epoch: int, step: int, learning_rate: float) -> None:
        self.epoch, self.step = epoch, step
        super().__init__(
            f"the loss became {loss} at epoch {epoch}, step {step}, learning rate {learning_rate:g}; "
            "lower --learning-rate or lengthen --warmup-epochs, in a new run or with --resume from the last checkpoint"
        )


def train_and_evaluate(
    config: TrainConfig,
    data: Parts,
    *,
    provenance: Provenance,
    host: str | None,
    started: float,
    stop_requested: Callable[[], bool],
    arrangement: Arrangement,
) -> Outcome:
    """Train until the last epoch or until a stop is asked for; rank 0 writes records, checkpoints and the result.

    `started`: unix time at which the process began; `arrangement`: what was chosen for this rank. Raises PayloadError,
    on all ranks.
    """
    with distributed.losses_told():
        return _train_and_evaluate(config, data, provenance, host, started, stop_requested, arrangement)


def _train_and_evaluate(
    config: TrainConfig,
    data: Parts,
    provenance: Provenance,
    host: str | None,
    started: float,
    stop_requested: Callable[[], bool],
    arrangement: Arrangement,
) -> Outcome:
    settings = config.settings
    ranks = distributed.join()
    _set_threads(arrangement)
    ranks = distributed.with_hosts(ranks, host)
    distributed.require_agreement(
        ranks, data.digest(), what="data", when="at the start", advice="Give every rank the same files"
    )
    schedule = schedule_for(settings, examples=data.train.examples, ranks=ranks.size)
    state = new_state(settings, data, schedule)
    store = store_for(settings, config.run_dir)
    beginning = distributed.broadcast_value(
        distributed.attempt(ranks, lambda: _begin(config, state, store, schedule, root=ranks.is_root)), name="beginning"
    )
    distributed.broadcast_variables(list(state.variables.values()))
    _require_equal_weights(ranks, state, "after the broadcast at the start")
    reporter = distributed.attempt(ranks, lambda: _reporter(config, ranks, started))
    with contextlib.closing(reporter), contextlib.closing(CheckpointWriter(store)) as writer:
        run = Run(
            config=config,
            data=data,
            ranks=ranks,
            arrangement=arrangement,
            placements=distributed.gather_values(str(arrangement.placement), name="placements"),
            state=state,
            writer=writer,
            cadence=Cadence(
                epochs=settings.checkpoint_epochs,
                last_epoch=schedule.epochs,
                minutes=settings.checkpoint_minutes,
                keep_best=settings.keep_best,
                best=beginning.best_accuracy,
            ),
            reporter=reporter,
            schedule=schedule,
            train_step=make_train_step(state.model, state.optimizer, settings),
            evaluation_step=make_evaluation_step(state.model),
            stop_requested=stop_requested,
        )
        return _train(run, beginning, provenance, started)


def _reporter(config: TrainConfig, ranks: Ranks, started: float) -> Reporter:
    span = Span.parse(config.settings.profile_steps)
    return Reporter(config.run_dir, active=ranks.is_root, started=started, profiled=span)


def _begin(
    config: TrainConfig, state: TrainState, store: CheckpointStore, schedule: Schedule, *, root: bool
) -> Beginning:
    """Begin anew or with a checkpoint on rank 0, from which all others are told."""
    batch = schedule.phase(0).global_batch
    fresh = Progress(recipe=config.recipe.name, seed=config.settings.seed, global_batch=batch)
    if not root:
        return Beginning(progress=fresh)
    return begin(state, store, fresh, settings=lasting(config.settings, batch), wanted=config.resume)


def _train(run: Run, beginning: Beginning, provenance: Provenance, started: float) -> Outcome:
    """Run the epochs that are left, then write the result."""
    _together(run, lambda: run.reporter.start(run, beginning))
    progress = beginning.progress
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
    last = run.test_view(run.schedule.epochs - 1)
    if test is None or run.data.validation:
        validation, test = test, evaluate(run, run.data.test, last)
    else:
        validation = None
    _together(run, functools.partial(_finish_saving, run))
    counts = confusion_counts(run, run.data.test, last) if run.settings.confusion_matrix else None
    _together(run, functools.partial(write_products, run, progress, counts))
    outcome = (train, validation, test, beginning.resumed_from, provenance, started)
    _together(run, functools.partial(write_outcome, run, progress, *outcome))
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
    phase = run.schedule.phase(progress.epoch)
    slots = -(-phase.global_batch // run.ranks.size)
    supply = Supply(
        batches,
        epoch=progress.epoch,
        first_step=progress.step,
        steps=run.schedule.steps(progress.epoch),
        empty=empty_batch(run.training_view(progress.epoch).size, run.data.train.channels, slots),
    )
    clock = run.reporter.clock()
    troubles: list[PayloadError] = []

    def check() -> None:
        supply.check()
        for trouble in troubles:
            raise trouble

    for batch in run.reporter.profiler.awaited(supply):
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
            _require_equal_weights(run.ranks, run.state, "after the first step")
        try:
            clock.step(run, progress, batch.batch_size, sums, rate)
            if run.ranks.is_root and progress.step < supply.steps and not sums.stops and run.cadence.within_epoch():
                _save(run, progress)
        except PayloadError as error:
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


def _close_epoch(run: Run, progress: Progress, train: Figures, test: Figures, seconds: float) -> None:
    """Report an epoch, and begin to write a checkpoint when one is due (rank 0)."""
    run.reporter.epoch(run, progress, train, test, seconds)
    if run.cadence.after_epoch(progress.epoch, test.accuracy):
        _save(run, progress, test.accuracy)
    run.writer.check()


def _save(run: Run, progress: Progress, accuracy: float | None = None) -> None:
    """Copy the variables and begin to write them; report what was written meanwhile (rank 0)."""
    settings = lasting(run.settings, run.schedule.phase(0).global_batch)
    run.writer.save(progress, run.state.arrays, settings=settings, accuracy=accuracy)
    run.cadence.saved()
    run.reporter.written(run.writer.written())


def _finish_saving(run: Run) -> None:
    """Wait until the last checkpoint is there (rank 0)."""
    run.writer.finish()
    run.reporter.written(run.writer.written())


def _save_stopped(run: Run, progress: Progress) -> None:
    """Write a checkpoint in the middle of an epoch, and say so (rank 0)."""
    _save(run, progress)
    _finish_saving(run)
    run.reporter.stopped(progress, name_of(progress))


def _require_equal_weights(ranks: Ranks, state: TrainState, when: str) -> None:
    distributed.require_agreement(ranks, state.digest(), what="weights", when=when, advice=_ADVICE)


def _set_threads(arrangement: Arrangement) -> None:
    """Start as many threads as this rank has cores. TensorFlow would start as many as the host has, per rank."""
    tf.config.threading.set_intra_op_parallelism_threads(arrangement.tuning.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(arrangement.tuning.inter_op_threads)
