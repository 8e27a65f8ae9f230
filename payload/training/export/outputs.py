"""What a run makes at its end on request: confusion matrix, pictures for TensorBoard, the network as files."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from payload.training.context import Run
from payload.training.export.model_card import ModelCard
from payload.training.export.model_spec import Blueprint, blueprint_of
from payload.training.export.saved_model import EXPORT_DIRECTORY, write_product
from payload.training.progress import Progress
from payload.training.reporting.confusion import Confusion, write_confusion
from payload.training.state import TrainState


def write_products(run: Run, progress: Progress, counts: Any | None) -> None:
    """Write what the settings ask for (rank 0). `counts`: of the confusion matrix. Raises StorageError."""
    blueprint = blueprint_of(run)
    if counts is not None:
        write_confusion(run.config.run_dir, Confusion(labels=blueprint.labels, counts=counts))
    run.reporter.pictures(run)
    if run.settings.export:
        card = card_of(blueprint, run.state, progress.total_steps)
        with run.state.averaged():
            write_product(run.config.run_dir / EXPORT_DIRECTORY, run.state.model, card)


def card_of(blueprint: Blueprint, state: TrainState, steps: int) -> ModelCard:
    """Describe the network of a run as it is after so many steps."""
    return ModelCard(
        recipe=blueprint.recipe,
        network=blueprint.settings.network,
        dataset=blueprint.settings.dataset,
        labels=blueprint.labels,
        size=blueprint.test_size,
        channels=blueprint.input_shape[2],
        rectangular=blueprint.rectangular,
        margin=blueprint.margin,
        data_dir=blueprint.data_dir,
        settings=dataclasses.asdict(blueprint.settings),
        steps=steps,
        averaged=bool(blueprint.settings.ema_decay),
        weights_sha256=state.digest().hex(),
        versions={"tensorflow": tf.__version__, "keras": keras.__version__},
    )
