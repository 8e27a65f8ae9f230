"""Train and evaluate one recipe on all ranks. Every function here runs on every rank unless it says otherwise."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import platform
import time
from collections.abc import Callable
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from payload.data.dataset import Dataset
from payload.data.feed import StepInput, epoch_inputs, is_augmented
from payload.data.sharding import epoch_plan
from payload.errors import PayloadError
from payload.training import distributed
from payload.training.checkpoints import CheckpointStore, Progress
from payload.training.config import TrainConfig
from payload.training.distributed import Ranks
from payload.training.records import Figures, Provenance, Result, write_result
from payload.training.reporting import Reporter
from payload.training.schedule import Schedule, schedule_for
from payload.training.state import TrainState, new_state, resume
from payload.training.steps import make_evaluation_step, make_train_step

EVALUATION_SLOTS: Final = 512
"""Test images a rank and step at most: bounds the memory of an evaluation."""
_ADVICE: Final = "Gradients were not averaged, or a rank runs other code. The run stops; do not use its weights"


class DivergedError(PayloadError, ArithmeticError):
    """Report a loss that is no number any more. Carries `epoch` and `step`, both counted from 1."""

    def __init__(self, loss: float, epoch: int, step: int, learning_rate: float) -> None:
        self.epoch, self.step = epoch, step
        super().__init__(
            f"the loss became {loss} at epoch {epoch}, step {step}, learning rate {learning_rate:g}; "
            "lower --learning-rate or lengthen --warmup-epochs"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Hold what stays the same during one run."""

    config: TrainConfig
    data: Dataset
    ranks: Ranks
    state: TrainState
    store: CheckpointStore
    reporter: Reporter
    schedule: Schedule
    train_step: Callable[..., Any]
    evaluation_step: Callable[..., Any]
    stop_requested: Callable[[], bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Say how a run ended: with a result, or stopped with a checkpoint from which it can go on."""

    progress: Progress
    stopped: bool


def train_and_evaluate(
    config: TrainConfig,
    data: Dataset,
    *,
    provenance: Provenance,
    host: str | None,
    started: float,
    stop_requested: Callable[[], bool],
) -> Outcome:
    """Train until the last epoch or until a stop is asked for; rank 0 writes records, checkpoints and the result.

    `started`: unix time at which the process began. Raises PayloadError, on all ranks.
    """
    ranks = distributed.join()
    _set_threads(config, ranks)
    ranks = distributed.with_hosts(ranks, host)
    distributed.require_agreement(
        ranks, data.digest(), what="data", when="at the start", advice="Give every rank the same files"
    )
    schedule = schedule_for(config.settings, examples=len(data.train_labels), ranks=ranks.size)
    state = new_state(config.settings, data)
    store = CheckpointStore(directory=config.run_dir / "checkpoints", keep=config.settings.keep_checkpoints)
    fresh = Progress(recipe=config.recipe.name, seed=config.settings.seed, global_batch=schedule.phase(0).global_batch)
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
            train_step=make_train_step(
                state.model,
                state.optimizer,
                data.train_images,
                data.train_labels,
                augmented=is_augmented(config.settings),
            ),
            evaluation_step=make_evaluation_step(state.model, data.test_images, data.test_labels),
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
        train = Figures(loss=progress.loss_sum / progress.seen, accuracy=progress.correct / progress.seen)
        test = _evaluate(run)
        if not math.isfinite(test.loss):
            rate = run.schedule.rate(progress.epoch, progress.step - 1)
            raise DivergedError(test.loss, progress.epoch + 1, progress.step, rate)
        progress = dataclasses.replace(progress, epoch=progress.epoch + 1, step=0, loss_sum=0.0, correct=0, seen=0)
        _require_equal_weights(run.ranks, run.state, f"after epoch {progress.epoch}")
        seconds = time.monotonic() - began
        _together(run, functools.partial(_close_epoch, run, progress, train, test, seconds))
    # None after a resumption of a run that lacked nothing but its result.
    test = test or _evaluate(run)
    _together(run, functools.partial(_finish, run, progress, train, test, resumed_from, provenance, started))
    return Outcome(progress=progress, stopped=False)


def _together(run: Run, action: Callable[[], None]) -> None:
    """Do on rank 0 what only one rank may do, and fail on all ranks when it fails (collective)."""
    distributed.attempt(run.ranks, action if run.ranks.is_root else lambda: None)


def _train_epoch(run: Run, progress: Progress) -> tuple[Progress, bool]:
    """Take the steps of one epoch that are left; return the new position, and whether a stop was asked for."""
    inputs = epoch_inputs(
        run.config.settings,
        run.data,
        global_batch=run.schedule.phase(progress.epoch).global_batch,
        epoch=progress.epoch,
        rank=run.ranks.rank,
        ranks=run.ranks.size,
    )
    clock = run.reporter.clock()
    for given in inputs[progress.step :]:
        rate = run.schedule.rate(progress.epoch, progress.step)
        loss_sum, correct, stops = _step(run, given, rate)
        if not math.isfinite(loss_sum):  # summed over all ranks, so that all of them stop here
            raise DivergedError(loss_sum / given.batch_size, progress.epoch + 1, progress.step + 1, rate)
        progress = dataclasses.replace(
            progress,
            step=progress.step + 1,
            total_steps=progress.total_steps + 1,
            loss_sum=progress.loss_sum + loss_sum,
            correct=progress.correct + round(correct),
            seen=progress.seen + given.batch_size,
        )
        if progress.total_steps == 1:
            _require_equal_weights(run.ranks, run.state, "after the first step")
        clock.step(run, progress, given.batch_size, loss_sum, correct, rate)
        if stops:
            return progress, True
    return progress, False


def _step(run: Run, given: StepInput, rate: float) -> tuple[float, float, float]:
    """Take one step (collective) and return the sums over all ranks: loss, images recognised, ranks asked to stop."""
    sums = run.train_step(
        tf.constant(given.indices),
        tf.constant(given.weights),
        tf.constant(given.transforms),
        tf.constant(given.batch_size, tf.float32),
        tf.constant(rate, tf.float32),
        tf.constant(run.stop_requested(), tf.float32),
    ).numpy()
    return float(sums[0]), float(sums[1]), float(sums[2])


def _evaluate(run: Run) -> Figures:
    """Return mean loss and accuracy over all test images, each counted once, whatever the number of ranks."""
    examples = len(run.data.test_labels)
    batch = min(EVALUATION_SLOTS * run.ranks.size, examples)
    plan = epoch_plan(np.arange(examples), global_batch=batch, rank=run.ranks.rank, ranks=run.ranks.size)
    sums = np.zeros(2, np.float64)
    for step in range(plan.steps):
        sums += run.evaluation_step(tf.constant(plan.indices[step]), tf.constant(plan.weights[step])).numpy()
    loss_sum, correct = distributed.sum_values(sums, name="evaluation")
    return Figures(loss=float(loss_sum) / examples, accuracy=float(correct) / examples)


def _close_epoch(run: Run, progress: Progress, train: Figures, test: Figures, seconds: float) -> None:
    """Report an epoch, and write a checkpoint when one is due (rank 0)."""
    run.reporter.epoch(run, progress, train, test, seconds)
    if progress.epoch % run.config.settings.checkpoint_epochs == 0 or progress.epoch == run.schedule.epochs:
        run.store.save(progress, run.state.arrays())


def _save_stopped(run: Run, progress: Progress) -> None:
    """Write a checkpoint in the middle of an epoch, and say so (rank 0)."""
    path = run.store.save(progress, run.state.arrays())
    run.reporter.stopped(progress, path.name)


def _finish(
    run: Run,
    progress: Progress,
    train: Figures | None,
    test: Figures,
    resumed_from: str | None,
    provenance: Provenance,
    started: float,
) -> None:
    """Write the result (rank 0)."""
    result = Result(
        recipe=run.config.recipe.name,
        test_accuracy=test.accuracy,
        test_loss=test.loss,
        train_accuracy=train.accuracy if train else None,
        train_loss=train.loss if train else None,
        epochs=progress.epoch,
        steps=progress.total_steps,
        seconds=time.time() - started,
        training_seconds=run.reporter.training_seconds,
        images_per_s=run.reporter.images_per_s,
        ranks=run.ranks.size,
        hosts=run.ranks.hosts,
        global_batch=run.schedule.phase(run.schedule.epochs - 1).global_batch,
        peak_learning_rate=run.schedule.peak,
        seed=run.config.settings.seed,
        resumed_from=resumed_from,
        weights_sha256=run.state.digest().hex(),
        parameters=run.state.model.count_params(),
        versions=_versions(),
        payload_hash=provenance.payload_hash,
        git_commit=provenance.git_commit,
        finished=time.time(),
    )
    run.reporter.end(result)
    write_result(run.config.run_dir, result)


def _require_equal_weights(ranks: Ranks, state: TrainState, when: str) -> None:
    distributed.require_agreement(ranks, state.digest(), what="weights", when=when, advice=_ADVICE)


def _set_threads(config: TrainConfig, ranks: Ranks) -> None:
    """Give this rank its share of the cores. TensorFlow would start as many threads as the host has cores, per rank."""
    cores = len(os.sched_getaffinity(0))
    tf.config.threading.set_intra_op_parallelism_threads(
        config.settings.intra_op_threads or max(1, cores // ranks.local_size)
    )
    tf.config.threading.set_inter_op_parallelism_threads(config.settings.inter_op_threads or 1)


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "horovod": distributed.version(),
        "numpy": np.__version__,
    }
