"""The result of a completed run."""

from __future__ import annotations

import dataclasses
import platform
import time

import keras
import numpy as np
import tensorflow as tf

from payload.training import distributed
from payload.training.context import Run
from payload.training.progress import Progress
from payload.training.run_files import Figures, Provenance, Result, write_result


def write_outcome(
    run: Run,
    progress: Progress,
    train: Figures | None,
    validation: Figures | None,
    test: Figures,
    resumed_from: str | None,
    provenance: Provenance,
    started: float,
) -> None:
    """Write result.json and say how it went (rank 0). `train`: None where a resumed run had nothing left to train."""
    result = Result(
        recipe=run.config.recipe.name,
        variant=run.config.variant.name if run.config.variant else None,
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
        seconds=time.time() - started,
        training_seconds=run.reporter.training_seconds,
        epoch_seconds=tuple(run.reporter.epoch_seconds),
        data_wait_seconds=run.reporter.data_wait_seconds,
        images_per_s=run.reporter.images_per_s,
        ranks=run.ranks.size,
        hosts=run.ranks.hosts,
        global_batch=run.schedule.phase(run.schedule.epochs - 1).global_batch,
        peak_learning_rate=run.schedule.peak,
        seed=run.settings.seed,
        resumed_from=resumed_from,
        weights_sha256=run.state.digest().hex(),
        parameters=run.state.model.count_params(),
        settings=dataclasses.asdict(run.settings),
        arrangement=run.arrangement.values(),
        placements=run.placements,
        versions=_versions(),
        payload_hash=provenance.payload_hash,
        git_commit=provenance.git_commit,
        finished=time.time(),
    )
    run.reporter.end(result)
    write_result(run.config.run_dir, result)


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "horovod": distributed.version(),
        "numpy": np.__version__,
    }
