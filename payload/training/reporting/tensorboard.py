"""What TensorBoard shows of a run, and when it is written. Rank 0 alone; nothing here is collective."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from payload.data.pipeline.batches import test_batches, training_batches
from payload.data.types import View
from payload.settings import GROUPS, Settings
from payload.training.export.model_spec import names_of
from payload.training.losses import pixels
from payload.training.reporting.event_writer import Events, markdown_table
from payload.training.reporting.image_grid import Pixels, enlarged, filter_pictures, mosaic
from payload.training.reporting.projector import image_count, write_projector

if TYPE_CHECKING:
    from payload.training.context import Run

SAMPLES: Final = 25
"""Training images shown."""
SLOTS: Final = 32
"""Test images that go through the network at a time, for the embeddings."""


class Board:
    """Write the events of one run."""

    def __init__(self, run_dir: Path) -> None:
        """Open an event file. Raises StorageError."""
        self._events = Events(run_dir)
        self.directory = self._events.directory

    def close(self) -> None:
        """Close the file."""
        self._events.close()

    def start(self, run: Run, epoch: int) -> None:
        """Show the configuration, and with `pictures` what goes into the network after `epoch` epochs."""
        self._events.text("run", run_table(run))
        self._events.text("settings", settings_table(run.settings))
        if run.settings.pictures:
            self._pictures(run, epoch=min(epoch, run.schedule.epochs - 1), step=epoch)

    def step(self, number: int, values: dict[str, float]) -> None:
        """Add a step to its curves; `number` counts from the beginning of the run."""
        self._events.scalars(number, {f"step/{name}": value for name, value in values.items()}, flush=False)

    def epoch(self, run: Run, epoch: int, values: dict[str, float]) -> None:
        """Add an epoch, counted from 1, to its curves, and how the weights are spread where that is due."""
        self._events.scalars(epoch, values)
        every = run.settings.histogram_epochs
        if every and (epoch % every == 0 or epoch == run.schedule.epochs):
            self._events.histograms(epoch, spread(run))

    def end(self, run: Run) -> None:
        """Show filters, what goes into the network at last, and what it makes of test images, where that is wanted."""
        if run.settings.pictures:
            self._pictures(run, epoch=run.schedule.epochs - 1, step=run.schedule.epochs)
            self._embedding(run)

    def _pictures(self, run: Run, *, epoch: int, step: int) -> None:
        self._events.pictures(step, "training images", mosaic(enlarged(seen_images(run, epoch), 64), gap=2)[None])
        if (kernel := first_kernel(run.state.model)) is not None:
            filters = mosaic(enlarged(filter_pictures(kernel), 48), gap=2)
            self._events.pictures(step, "first filters", filters[None])

    def _embedding(self, run: Run) -> None:
        model = run.state.model
        before, part = model.layers[-1].input, run.data.test
        count = image_count(part.examples, before.shape[-1])
        chosen = part.pick(np.linspace(0, part.examples - 1, count).astype(np.int64))
        view = View(size=run.test_view(run.schedule.epochs - 1).size)
        with run.state.averaged():
            features, found, labels, images = _through(
                keras.Model(model.inputs, [before, model.outputs[0]]),
                test_batches(chosen, view, slots=SLOTS, rank=0, ranks=1),
            )
        names = names_of(run)
        write_projector(
            self.directory,
            features=features,
            truth=[names[number] for number in labels],
            recognised=[names[number] for number in found],
            images=images,
        )


def _through(model: Any, batches: Iterator[Any]) -> tuple[npt.NDArray[Any], ...]:
    """Return features, recognised and true classes, and images, of all examples in the batches."""
    columns: list[tuple[npt.NDArray[Any], ...]] = []
    for batch in batches:
        features, logits = model(pixels(batch.images), training=False)
        used = batch.weights.numpy() > 0
        found = tf.argmax(logits, axis=1).numpy()
        rows = (tf.cast(features, tf.float32).numpy(), found, batch.labels.numpy(), as_bytes(batch.images))
        columns.append(tuple(row[used] for row in rows))
    return tuple(np.concatenate(parts) for parts in zip(*columns, strict=True))


def seen_images(run: Run, epoch: int) -> Pixels:
    """Return the first training images of an epoch on rank 0 as the network sees them, with all random changes."""
    batches = training_batches(
        run.data.train,
        run.training_view(epoch),
        seed=run.settings.seed,
        epoch=epoch,
        global_batch=run.schedule.phase(epoch).global_batch,
        rank=0,
        ranks=run.ranks.size,
        threads=1,
    )
    (first,) = itertools.islice(batches, 1)
    used = first.weights.numpy() > 0
    shown: Pixels = as_bytes(first.images)[used][:SAMPLES]
    return shown


def as_bytes(images: Any) -> Pixels:
    """Round images of 0 to 255 to bytes."""
    shown: Pixels = np.rint(images.numpy()).clip(0, 255).astype(np.uint8)
    return shown


def first_kernel(model: Any) -> npt.NDArray[Any] | None:
    """Return the weights of the first convolution, [height, width, inputs, filters]; None where there is none."""
    for layer in model.layers:
        kernel = getattr(layer, "kernel", None)
        if kernel is not None and len(kernel.shape) == 4:
            return np.asarray(kernel.numpy(), np.float32)
    return None


def spread(run: Run) -> dict[str, npt.NDArray[Any]]:
    """Return weights and, where the optimizer keeps them, means of the latest gradients, by the names of both.

    The gradients themselves are gone once they are applied; the optimizer's means of them are there.
    """
    weights = {f"weights/{variable.path}": variable.numpy() for variable in run.state.model.trainable_variables}
    kept = {
        f"optimizer/{variable.path}": variable.numpy()
        for variable in run.state.optimizer.rule.variables
        if len(variable.shape)  # the others count steps, or hold a rate
    }
    return {**weights, **kept}


def run_table(run: Run) -> str:
    """Write what the run is, as Markdown."""
    last = run.schedule.phase(run.schedule.epochs - 1)
    rows = [
        ("recipe", run.config.recipe.name + (f", variant {run.config.variant.name}" if run.config.variant else "")),
        ("network", f"{run.settings.network}, {run.state.model.count_params():,} numbers"),
        ("training images", f"{run.data.train.examples:,}"),
        ("test images", f"{run.data.test.examples:,}"),
        ("classes", f"{run.data.train.classes:,}"),
        ("ranks", f"{run.ranks.size} on {', '.join(dict.fromkeys(run.ranks.hosts))}"),
        ("global batch", f"{run.schedule.phase(0).global_batch}, at the end {last.global_batch}"),
        ("steps", f"{run.schedule.total_steps:,} in {run.schedule.epochs} epochs"),
        ("highest learning rate", f"{run.schedule.peak:g}"),
    ]
    return markdown_table(("run", ""), rows)


def settings_table(settings: Settings) -> str:
    """Write every setting as Markdown, those that differ from the usual ones in bold."""
    usual = Settings()
    rows = []
    for field in (field for group in GROUPS for field in dataclasses.fields(group)):
        value = getattr(settings, field.name)
        shown = f"**{value}**" if value != getattr(usual, field.name) else f"{value}"
        rows.append((field.name, shown, field.metadata["help"]))
    return markdown_table(("setting", "value", "what it is"), rows)
