"""Write a run's TensorBoard events. This module runs on rank 0 only; it does not communicate."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from payload.data.dataset import View
from payload.data.pipeline.batches import test_batches, training_batches
from payload.settings import GROUPS, Settings
from payload.training.losses import pixels
from payload.training.plan import TrainingPlan
from payload.training.reporting.image_grid import Pixels, enlarged, filter_pictures, image_grid
from payload.training.reporting.projector import image_count, write_projector
from payload.training.reporting.tensorboard_events import Events, markdown_table
from payload.training.train_state import TrainState

SAMPLES: Final = 25
"""Number of training images to show."""
SLOTS: Final = 32
"""Number of test images to process at a time for the embeddings."""


class TensorBoard:
    """Write the TensorBoard events of one run."""

    def __init__(self, plan: TrainingPlan, state: TrainState) -> None:
        """Open an event file. Raises StorageError."""
        self._plan, self._state = plan, state
        self._events = Events(plan.config.run_dir)

    def close(self) -> None:
        """Close the event file."""
        self._events.close()

    def start(self, epoch: int) -> None:
        """Add tables of the run and its settings.

        With the setting `pictures`, also add the first filters, and training images of the epoch that follows `epoch`
        completed epochs. Raises StorageError.
        """
        self._events.text("run", run_table(self._plan, self._state.model.count_params()))
        self._events.text("settings", settings_table(self._plan.settings))
        if self._plan.settings.pictures:
            self._pictures(epoch=min(epoch, self._plan.schedule.epochs - 1), step=epoch)

    def step(self, number: int, values: dict[str, float]) -> None:
        """Add a point at step `number`, counted from the start of the run, to the curve `step/NAME` of each value.

        The points are not flushed immediately. Raises StorageError, possibly at a later call.
        """
        self._events.scalars(number, {f"step/{name}": value for name, value in values.items()}, flush=False)

    def epoch(self, epoch: int, values: dict[str, float]) -> None:
        """Add a point at `epoch`, counted from 1, to the curve of each value, by name. Raises StorageError.

        Also add histograms of the weights every `histogram_epochs` epochs and after the last epoch, unless this setting
        is 0.
        """
        self._events.scalars(epoch, values)
        every = self._plan.settings.histogram_epochs
        if every and (epoch % every == 0 or epoch == self._plan.schedule.epochs):
            self._events.histograms(epoch, histogram_arrays(self._state))

    def end(self) -> None:
        """With the setting `pictures`, add training images of the last epoch, the first filters and embeddings.

        The embeddings are those of test images, which are read and classified here. Raises StorageError.
        """
        epochs = self._plan.schedule.epochs
        if self._plan.settings.pictures:
            self._pictures(epoch=epochs - 1, step=epochs)
            self._embedding()

    def _pictures(self, *, epoch: int, step: int) -> None:
        images = augmented_images(self._plan, epoch)
        self._events.pictures(step, "training images", image_grid(enlarged(images, 64), gap=2)[None])
        if (kernel := first_kernel(self._state.model)) is not None:
            filters = image_grid(enlarged(filter_pictures(kernel), 48), gap=2)
            self._events.pictures(step, "first filters", filters[None])

    def _embedding(self) -> None:
        model = self._state.model
        before, split = model.layers[-1].input, self._plan.data.test
        count = image_count(split.examples, before.shape[-1])
        chosen = split.pick(np.linspace(0, split.examples - 1, count).astype(np.int64))
        view = View(size=self._plan.last_test_view.size)
        with self._state.optimizer.averaged():
            features, found, labels, images = _through(
                keras.Model(model.inputs, [before, model.outputs[0]]),
                test_batches(chosen, view, slots=SLOTS, rank=0, ranks=1),
            )
        names = self._plan.class_names()
        write_projector(
            self._events.directory,
            features=features,
            truth=[names[number] for number in labels],
            recognized=[names[number] for number in found],
            images=images,
        )


def _through(model: Any, batches: Iterator[Any]) -> tuple[npt.NDArray[Any], ...]:
    """Return the features, predicted classes, true classes and images of all examples in the batches."""
    columns: list[tuple[npt.NDArray[Any], ...]] = []
    for batch in batches:
        features, logits = model(pixels(batch.images), training=False)
        used = batch.weights.numpy() > 0
        found = tf.argmax(logits, axis=1).numpy()
        rows = (tf.cast(features, tf.float32).numpy(), found, batch.labels.numpy(), as_bytes(batch.images))
        columns.append(tuple(row[used] for row in rows))
    return tuple(np.concatenate(parts) for parts in zip(*columns, strict=True))


def augmented_images(plan: TrainingPlan, epoch: int) -> Pixels:
    """Return rank 0's first training images of an epoch, at most SAMPLES, with all random changes.

    The result is uint8 [N, height, width, channels]. Epochs count from 0.
    """
    batches = training_batches(
        plan.data.train,
        plan.training_view(epoch),
        seed=plan.settings.seed,
        epoch=epoch,
        global_batch=plan.schedule.phase(epoch).global_batch,
        rank=0,
        ranks=plan.ranks.size,
        threads=1,
    )
    (first,) = itertools.islice(batches, 1)
    used = first.weights.numpy() > 0
    shown: Pixels = as_bytes(first.images)[used][:SAMPLES]
    return shown


def as_bytes(images: Any) -> Pixels:
    """Round images, 0 to 255, to bytes."""
    shown: Pixels = np.rint(images.numpy()).clip(0, 255).astype(np.uint8)
    return shown


def first_kernel(model: Any) -> npt.NDArray[Any] | None:
    """Return the weights of the first convolution, [height, width, inputs, filters]; None if the network has none."""
    for layer in model.layers:
        kernel = getattr(layer, "kernel", None)
        if kernel is not None and len(kernel.shape) == 4:
            return np.asarray(kernel.numpy(), np.float32)
    return None


def histogram_arrays(state: TrainState) -> dict[str, npt.NDArray[Any]]:
    """Return the weights and the optimizer's variables by name, for histograms. Scalars are left out.

    The optimizer's variables include moving averages of the gradients. The gradients themselves no longer exist.
    """
    weights = {f"weights/{variable.path}": variable.numpy() for variable in state.model.trainable_variables}
    kept = {
        f"optimizer/{variable.path}": variable.numpy()
        for variable in state.optimizer.rule.variables
        if len(variable.shape)  # scalars are step counts or learning rates
    }
    return {**weights, **kept}


def run_table(plan: TrainingPlan, parameters: int) -> str:
    """Summarize the run as a Markdown table."""
    last = plan.schedule.phase(plan.schedule.epochs - 1)
    rows = [
        ("recipe", plan.config.recipe.name + (f", variant {plan.variant}" if plan.variant else "")),
        ("network", f"{plan.settings.network}, {parameters:,} numbers"),
        ("training images", f"{plan.data.train.examples:,}"),
        ("test images", f"{plan.data.test.examples:,}"),
        ("classes", f"{plan.data.train.classes:,}"),
        ("ranks", f"{plan.ranks.size} on {', '.join(dict.fromkeys(plan.ranks.hosts))}"),
        ("global batch", f"{plan.schedule.phase(0).global_batch}, at the end {last.global_batch}"),
        ("steps", f"{plan.schedule.total_steps:,} in {plan.schedule.epochs} epochs"),
        ("highest learning rate", f"{plan.schedule.peak:g}"),
    ]
    return markdown_table(("run", ""), rows)


def settings_table(settings: Settings) -> str:
    """Format all settings as a Markdown table. Values that differ from the defaults are bold."""
    default = Settings()
    rows = []
    for field in (field for group in GROUPS for field in dataclasses.fields(group)):
        value = getattr(settings, field.name)
        shown = f"**{value}**" if value != getattr(default, field.name) else f"{value}"
        rows.append((field.name, shown, field.metadata["help"]))
    return markdown_table(("setting", "value", "what it is"), rows)
