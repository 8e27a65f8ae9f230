"""Collect the result of a completed run."""

from __future__ import annotations

import dataclasses
import platform
import time

import keras
import numpy as np
import tensorflow as tf

from payload.training import distributed
from payload.training.checkpoints.resume import StartPoint
from payload.training.export.export_network import Exported
from payload.training.plan import TrainingPlan
from payload.training.progress import Progress
from payload.training.reporting.result_file import Result, Scores
from payload.training.reporting.step_timer import RunTotals
from payload.training.train_state import TrainState


def result_of(
    plan: TrainingPlan,
    state: TrainState,
    totals: RunTotals,
    progress: Progress,
    *,
    train: Scores | None,
    validation: Scores | None,
    test: Scores,
    start_point: StartPoint,
    exported: Exported,
) -> Result:
    """Return the result of a completed run.

    `train`: None if a resumed run had no epochs left to train. `validation`: None without validation images.
    """
    return Result(
        recipe=plan.config.recipe.name,
        variant=plan.variant,
        test_accuracy=test.accuracy,
        test_top5_accuracy=test.top5_accuracy,
        test_loss=test.loss,
        validation_accuracy=validation.accuracy if validation else None,
        validation_loss=validation.loss if validation else None,
        train_accuracy=train.accuracy if train else None,
        train_loss=train.loss if train else None,
        epochs=progress.epoch,
        steps=progress.total_steps,
        skipped_records=progress.skipped,
        seconds=time.time() - plan.started,
        training_seconds=totals.training_seconds,
        epoch_seconds=tuple(totals.epoch_seconds),
        data_wait_seconds=totals.data_wait_seconds,
        checkpoint_seconds=totals.checkpoint_seconds,
        checkpoints_missed=tuple(totals.checkpoints_missed),
        images_per_s=totals.images_per_s,
        ranks=plan.ranks.size,
        hosts=plan.ranks.hosts,
        global_batch=plan.schedule.phase(plan.schedule.epochs - 1).global_batch,
        peak_learning_rate=plan.schedule.peak,
        seed=plan.settings.seed,
        resumed_from=start_point.resumed_from,
        passed_over=start_point.faults,
        weights_sha256=state.digest().hex(),
        parameters=state.model.count_params(),
        settings=dataclasses.asdict(plan.settings),
        arrangement=plan.rank_setup.values(),
        placements=plan.placements,
        versions=_versions(),
        payload_hash=plan.provenance.payload_hash,
        git_commit=plan.provenance.git_commit,
        finished=time.time(),
        exported=exported.forms,
        onnx_refused=exported.onnx_refused,
    )


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "horovod": distributed.version(),
        "numpy": np.__version__,
    }
