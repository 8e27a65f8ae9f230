"""Train and evaluate one recipe on all ranks. Every function here runs on every rank unless it says otherwise."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import platform
import time
from collections.abc import Callable
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from payload import distributed
from payload.augmentation import affine_transforms
from payload.checkpoints import CheckpointStore, Progress
from payload.config import TrainConfig, TrainConfigError
from payload.data.dataset import Dataset
from payload.distributed import Ranks
from payload.errors import PayloadError
from payload.records import Provenance, Result, write_result
from payload.reporting import Reporter
from payload.schedule import WarmupCosine, schedule_for
from payload.sharding import EpochPlan, epoch_order, epoch_plan, steps_per_epoch
from payload.state import TrainState, new_state, require_same_run
from payload.steps import make_evaluation_step, make_train_step

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
    schedule: WarmupCosine
    global_batch: int
    steps_per_epoch: int
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
    global_batch = config.global_batch_for(ranks.size)
    if global_batch > len(data.train_labels):
        rule = f"more than the {len(data.train_labels)} training images; choose a smaller batch or fewer ranks"
        raise TrainConfigError("--global-batch", global_batch, rule)
    state = new_state(config, data)
    store = CheckpointStore(directory=config.run_dir / "checkpoints", keep=config.keep_checkpoints)
    fresh = Progress(recipe=config.recipe.name, seed=config.seed, global_batch=global_batch)
    progress, resumed_from = distributed.broadcast_value(
        distributed.attempt(ranks, lambda: _resume(config, ranks, state, store, fresh)), name="progress"
    )
    distributed.broadcast_variables(list(state.variables.values()))
    _require_equal_weights(ranks, state, "after the broadcast at the start")
    per_epoch = steps_per_epoch(len(data.train_labels), global_batch)
    reporter = distributed.attempt(ranks, lambda: Reporter(config.run_dir, active=ranks.is_root, started=started))
    with contextlib.closing(reporter):
        run = Run(
            config=config,
            data=data,
            ranks=ranks,
            state=state,
            store=store,
            reporter=reporter,
            schedule=schedule_for(
                learning_rate=config.learning_rate,
                peak=config.peak_learning_rate(global_batch),
                warmup_epochs=config.warmup_epochs,
                epochs=config.epochs,
                steps_per_epoch=per_epoch,
            ),
            global_batch=global_batch,
            steps_per_epoch=per_epoch,
            train_step=make_train_step(
                state.model, state.optimizer, data.train_images, data.train_labels, augmented=_augmented(config)
            ),
            evaluation_step=make_evaluation_step(state.model, data.test_images, data.test_labels),
            stop_requested=stop_requested,
        )
        return _train(run, progress, resumed_from, provenance, started)


def _train(run: Run, progress: Progress, resumed_from: str | None, provenance: Provenance, started: float) -> Outcome:
    distributed.attempt(run.ranks, lambda: run.reporter.start(run, resumed_from))
    loss, accuracy = math.nan, math.nan
    train_loss, train_accuracy = math.nan, math.nan
    if progress.epoch >= run.config.epochs:  # a finished run, resumed: nothing is left but to evaluate
        loss, accuracy = _evaluate(run)
    while progress.epoch < run.config.epochs:
        began = time.monotonic()
        progress, stopped = _train_epoch(run, progress)
        if stopped:
            path = distributed.attempt(run.ranks, lambda p=progress: _save(run, p))  # type: ignore[misc]  # p is bound now
            distributed.attempt(run.ranks, lambda p=progress, at=path: run.reporter.stopped(p, at))  # type: ignore[misc]
            return Outcome(progress=progress, stopped=True)
        train_loss, train_accuracy = progress.loss_sum / progress.seen, progress.correct / progress.seen
        loss, accuracy = _evaluate(run)
        if not math.isfinite(loss):
            raise DivergedError(loss, progress.epoch + 1, progress.step, run.schedule.rate(progress.total_steps))
        progress = dataclasses.replace(progress, epoch=progress.epoch + 1, step=0, loss_sum=0.0, correct=0, seen=0)
        _require_equal_weights(run.ranks, run.state, f"after epoch {progress.epoch}")
        _close_epoch(run, progress, (train_loss, train_accuracy, loss, accuracy), time.monotonic() - began)
    digest = run.state.digest()

    def finish() -> None:
        if not run.ranks.is_root:
            return
        result = Result(
            recipe=run.config.recipe.name,
            test_accuracy=accuracy,
            test_loss=loss,
            train_accuracy=train_accuracy,
            train_loss=train_loss,
            epochs=progress.epoch,
            steps=progress.total_steps,
            seconds=time.time() - started,
            training_seconds=run.reporter.training_seconds,
            images_per_s=run.reporter.images_per_s,
            ranks=run.ranks.size,
            hosts=run.ranks.hosts,
            global_batch=run.global_batch,
            peak_learning_rate=run.schedule.peak,
            seed=run.config.seed,
            resumed_from=resumed_from,
            weights_sha256=digest.hex(),
            parameters=run.state.model.count_params(),
            versions=_versions(),
            payload_hash=provenance.payload_hash,
            git_commit=provenance.git_commit,
            finished=time.time(),
        )
        run.reporter.end(result)
        write_result(run.config.run_dir, result)

    distributed.attempt(run.ranks, finish)
    return Outcome(progress=progress, stopped=False)


def _train_epoch(run: Run, progress: Progress) -> tuple[Progress, bool]:
    """Take the steps of one epoch that are left; return the new position, and whether a stop was asked for."""
    plan = _plan(run, progress.epoch)
    transforms = _transforms(run, progress.epoch, plan)
    clock = run.reporter.clock()
    for step in range(progress.step, plan.steps):
        rate = run.schedule.rate(progress.total_steps)
        size = int(plan.batch_sizes[step])
        loss_sum, correct, stops = run.train_step(
            tf.constant(plan.indices[step]),
            tf.constant(plan.weights[step]),
            tf.constant(transforms[step]),
            tf.constant(size, tf.float32),
            tf.constant(rate, tf.float32),
            tf.constant(run.stop_requested(), tf.float32),
        ).numpy()
        if not math.isfinite(loss_sum):  # summed over all ranks, so that all of them stop here
            raise DivergedError(float(loss_sum) / size, progress.epoch + 1, step + 1, rate)
        progress = dataclasses.replace(
            progress,
            step=step + 1,
            total_steps=progress.total_steps + 1,
            loss_sum=progress.loss_sum + float(loss_sum),
            correct=progress.correct + round(float(correct)),
            seen=progress.seen + size,
        )
        if progress.total_steps == 1:
            _require_equal_weights(run.ranks, run.state, "after the first step")
        clock.step(run, progress, size, float(loss_sum), float(correct), rate)
        if stops:
            return progress, True
    return progress, False


def _evaluate(run: Run) -> tuple[float, float]:
    """Return mean loss and accuracy over all test images, each counted once, whatever the number of ranks."""
    examples = len(run.data.test_labels)
    batch = min(EVALUATION_SLOTS * run.ranks.size, examples)
    plan = epoch_plan(np.arange(examples), global_batch=batch, rank=run.ranks.rank, ranks=run.ranks.size)
    sums = np.zeros(2, np.float64)
    for step in range(plan.steps):
        sums += run.evaluation_step(tf.constant(plan.indices[step]), tf.constant(plan.weights[step])).numpy()
    loss_sum, correct = distributed.sum_values(sums, name="evaluation")
    return float(loss_sum) / examples, float(correct) / examples


def _close_epoch(run: Run, progress: Progress, figures: tuple[float, float, float, float], seconds: float) -> None:
    due = progress.epoch % run.config.checkpoint_epochs == 0 or progress.epoch == run.config.epochs

    def write() -> None:
        run.reporter.epoch(run, progress, figures, seconds)
        if due:
            _save(run, progress)

    distributed.attempt(run.ranks, write)


def _save(run: Run, progress: Progress) -> str | None:
    """Write a checkpoint on rank 0 and return its name there."""
    if not run.ranks.is_root:
        return None
    return run.store.save(progress, run.state.arrays()).name


def _resume(
    config: TrainConfig, ranks: Ranks, state: TrainState, store: CheckpointStore, fresh: Progress
) -> tuple[Progress, str | None]:
    """Restore the newest valid checkpoint on rank 0, from which it is broadcast, and return the position."""
    if not ranks.is_root:
        return fresh, None
    if not config.resume:
        if store.paths():
            raise PayloadError(f"{config.run_dir} already holds a run's checkpoints; give --resume, or a new --run-dir")
        return fresh, None
    checkpoint, faults = store.newest_valid()
    for fault in faults:
        print(f"payload.train: warning: passed over {fault}", flush=True)
    if checkpoint is None:
        if faults:
            raise PayloadError(f"no valid checkpoint among {len(faults)} in {store.directory}; give a new --run-dir")
        return fresh, None
    require_same_run(checkpoint.progress, fresh)
    state.restore(checkpoint)
    return checkpoint.progress, checkpoint.path.name


def _require_equal_weights(ranks: Ranks, state: TrainState, when: str) -> None:
    distributed.require_agreement(ranks, state.digest(), what="weights", when=when, advice=_ADVICE)


def _plan(run: Run, epoch: int) -> EpochPlan:
    order = epoch_order(len(run.data.train_labels), seed=run.config.seed, epoch=epoch)
    return epoch_plan(order, global_batch=run.global_batch, rank=run.ranks.rank, ranks=run.ranks.size)


def _transforms(run: Run, epoch: int, plan: EpochPlan) -> Any:
    """Return float32 [steps, slots, 8], or an empty row a step where nothing is augmented."""
    if not _augmented(run.config):
        return np.zeros((plan.steps, 0, 8), np.float32)
    drawn = affine_transforms(
        len(run.data.train_labels),
        size=run.data.image_shape[:2],
        rotation_deg=run.config.rotation_deg,
        shift_fraction=run.config.shift_fraction,
        zoom_fraction=run.config.zoom_fraction,
        seed=run.config.seed,
        epoch=epoch,
    )
    return drawn[plan.indices]


def _augmented(config: TrainConfig) -> bool:
    return bool(config.rotation_deg or config.shift_fraction or config.zoom_fraction)


def _set_threads(config: TrainConfig, ranks: Ranks) -> None:
    """Give this rank its share of the cores. TensorFlow would start as many threads as the host has cores, per rank."""
    cores = len(os.sched_getaffinity(0))
    tf.config.threading.set_intra_op_parallelism_threads(config.intra_op_threads or max(1, cores // ranks.local_size))
    tf.config.threading.set_inter_op_parallelism_threads(config.inter_op_threads)


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "horovod": distributed.version(),
        "numpy": np.__version__,
    }
