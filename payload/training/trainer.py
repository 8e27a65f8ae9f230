"""Train and evaluate one recipe on all ranks. Every function here runs on every rank unless it says otherwise."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from payload.data.types import Parts
from payload.recipes.config import TrainConfig
from payload.settings import Settings
from payload.settings.step_span import StepSpan
from payload.training import distributed
from payload.training.checkpoints.cadence import Cadence
from payload.training.checkpoints.resume import Beginning, begin, store_for, with_batch_of
from payload.training.checkpoints.sameness import lasting
from payload.training.checkpoints.saving import finish_saving, save_after_epoch, save_stopped
from payload.training.checkpoints.store import CheckpointStore
from payload.training.checkpoints.writer import CheckpointWriter
from payload.training.context import Outcome, Run
from payload.training.distributed import Ranks
from payload.training.epoch import DivergedError, require_equal_weights, train_epoch
from payload.training.evaluation import confusion_counts, evaluate
from payload.training.evaluation_step import make_evaluation_step
from payload.training.export.outputs import write_products
from payload.training.progress import Progress
from payload.training.rank_setup import Arrangement
from payload.training.reporting.reporter import Reporter
from payload.training.reporting.result import write_outcome
from payload.training.run_files import Figures, Provenance
from payload.training.schedule import Schedule, schedule_for
from payload.training.state import TrainState, new_state
from payload.training.train_step import make_train_step


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

    `started`: unix time at which the process began; `arrangement`: what was chosen for this rank. Raises ReportedError,
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
    ranks = distributed.join()
    _set_threads(arrangement)
    ranks = distributed.with_hosts(ranks, host)
    distributed.require_agreement(
        ranks, data.digest(), what="data", when="at the start", advice="Give every rank the same files"
    )
    settings = config.settings
    store = store_for(settings, config.run_dir)
    if config.resume:
        settings = distributed.broadcast_value(
            distributed.attempt(ranks, lambda: _as_before(settings, store, ranks)), name="settings"
        )
        config = dataclasses.replace(config, settings=settings)
    schedule = schedule_for(settings, examples=data.train.examples, ranks=ranks.size)
    state = new_state(settings, data, schedule)
    beginning = distributed.broadcast_value(
        distributed.attempt(ranks, lambda: _begin(config, state, store, schedule, root=ranks.is_root)), name="beginning"
    )
    distributed.broadcast_variables(list(state.variables.values()))
    require_equal_weights(ranks, state, "after the broadcast at the start")
    state.draw_apart(ranks.rank)
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
    span = StepSpan.parse(config.settings.profile_steps)
    return Reporter(config.run_dir, active=ranks.is_root, started=started, profiled=span)


def _as_before(settings: Settings, store: CheckpointStore, ranks: Ranks) -> Settings:
    """Look on rank 0 what the run that goes on had, from which all others are told."""
    return with_batch_of(settings, store, ranks=ranks.size) if ranks.is_root else settings


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
        progress, stopped = train_epoch(run, progress)
        if stopped:
            _together(run, functools.partial(save_stopped, run, progress))
            return Outcome(progress=progress, stopped=True)
        train = progress.figures()
        test = evaluate(run, run.data.validation or run.data.test, run.test_view(progress.epoch))
        if not math.isfinite(test.loss):
            rate = run.schedule.rate(progress.epoch, progress.step - 1)
            raise DivergedError(test.loss, progress.epoch + 1, progress.step, rate)
        progress = progress.next_epoch()
        require_equal_weights(run.ranks, run.state, f"after epoch {progress.epoch}")
        waits = distributed.gather_values(run.reporter.waited_s, name="waits")
        seconds = time.monotonic() - began
        _together(run, functools.partial(_close_epoch, run, progress, train, test, seconds, waits))
    # None after a resumption of a run that lacked nothing but its result.
    last = run.test_view(run.schedule.epochs - 1)
    if test is None or run.data.validation:
        validation, test = test, evaluate(run, run.data.test, last)
    else:
        validation = None
    _together(run, functools.partial(finish_saving, run))
    counts = confusion_counts(run, run.data.test, last) if run.settings.confusion_matrix else None
    _together(run, functools.partial(write_products, run, progress, counts))
    outcome = (train, validation, test, beginning.resumed_from, provenance, started)
    _together(run, functools.partial(write_outcome, run, progress, *outcome))
    return Outcome(progress=progress, stopped=False)


def _together(run: Run, action: Callable[[], None]) -> None:
    """Do on rank 0 what only one rank may do, and fail on all ranks when it fails (collective)."""
    distributed.attempt(run.ranks, action if run.ranks.is_root else lambda: None)


def _close_epoch(
    run: Run, progress: Progress, train: Figures, test: Figures, seconds: float, waits: Sequence[float]
) -> None:
    """Report an epoch, and begin to write a checkpoint when one is due (rank 0)."""
    run.reporter.epoch(run, progress, train, test, seconds, waits)
    save_after_epoch(run, progress, test.accuracy)


def _set_threads(arrangement: Arrangement) -> None:
    """Start as many threads as this rank has cores. TensorFlow would start as many as the host has, per rank."""
    tf.config.threading.set_intra_op_parallelism_threads(arrangement.tuning.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(arrangement.tuning.inter_op_threads)
