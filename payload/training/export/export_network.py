"""Export the trained network to files that do not depend on this project.

    export/model.keras     Keras 3's format, with only Keras's own layers
    export/saved_model/    TensorFlow's format, for TensorFlow Serving and other languages
    export/model.onnx      on request: ONNX, for ONNX Runtime and other frameworks
    export/model.json      image size, class names and origin

All formats take uint8 images [B, height, width, channels] as read from a file, and return probabilities, float32
[B, classes]. Scaling of the pixels is included. The SavedModel's signature `serving_default` and the ONNX file also
return the most likely class.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import keras
import tensorflow as tf

from agent.files.atomic_write import StorageError, storing
from payload.tensorflow_errors import first_line
from payload.training.export.model_card import DESCRIPTION_FILE, KERAS_FILE, ONNX_FILE, SAVED_MODEL, ModelCard
from payload.training.export.onnx_conversion import OnnxError
from payload.training.export.onnx_file import write_onnx
from payload.training.export.serving_model import serving_model
from payload.training.export.settings_file import ModelSpec
from payload.training.train_state import TrainState


def export_network(directory: Path, spec: ModelSpec, state: TrainState, steps: int, *, onnx: bool = False) -> ModelCard:
    """Export the network of a run after `steps` steps to a directory; return its card.

    If the run evaluates the moving average of its weights, the average is exported. An existing directory is replaced.
    `onnx`: also write model.onnx. Raises StorageError. Raises OnnxError if the network cannot be converted; an existing
    directory then stays unchanged.
    """
    with state.optimizer.averaged():
        return write_export(directory, state.model, card_of(spec, state, steps), onnx=onnx)


def write_export(directory: Path, network: Any, card: ModelCard, *, onnx: bool = False) -> ModelCard:
    """Export a network to model.keras, saved_model/ and model.json in a directory, atomically; return its card.

    `network` takes float32 pixels, 0 to 1, and returns logits. The exported models take uint8 pixels and return
    probabilities. An existing directory is replaced. `onnx`: also write model.onnx, which the returned card describes.
    Raises StorageError and OnnxError as `export_network` does.
    """
    serving = serving_model(network)
    partial = directory.with_name(f".{directory.name}.partial")
    with _storing(directory):
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            serving.save(partial / KERAS_FILE)
            _write_saved_model(partial / SAVED_MODEL, serving)
            if onnx:
                card = dataclasses.replace(card, onnx=write_onnx(partial / ONNX_FILE, network, card))
            (partial / DESCRIPTION_FILE).write_text(json.dumps(dataclasses.asdict(card), indent=1) + "\n")
            _sync(partial)
            _replace(partial, directory)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return card


def card_of(spec: ModelSpec, state: TrainState, steps: int) -> ModelCard:
    """Return the description of a run's network after `steps` steps."""
    return ModelCard(
        recipe=spec.recipe,
        network=spec.settings.network,
        dataset=spec.settings.dataset,
        labels=spec.labels,
        size=spec.test_size,
        channels=spec.input_shape[2],
        rectangular=spec.rectangular,
        margin=spec.margin,
        data_dir=spec.data_dir,
        settings=dataclasses.asdict(spec.settings),
        steps=steps,
        averaged=bool(spec.settings.ema_decay),
        weights_sha256=state.digest().hex(),
        versions={"tensorflow": tf.__version__, "keras": keras.__version__},
    )


def _write_saved_model(path: Path, model: Any) -> None:
    def serve(images: Any) -> Mapping[str, Any]:
        probabilities = model(images, training=False)
        return {"probabilities": probabilities, "classes": tf.argmax(probabilities, axis=1)}

    archive = keras.export.ExportArchive()
    archive.track(model)
    signature = [tf.TensorSpec((None, *model.input_shape[1:]), tf.uint8, name="images")]
    archive.add_endpoint("serving_default", serve, input_signature=signature)
    archive.write_out(str(path), verbose=False)


def _sync(directory: Path) -> None:
    """Flush all files below a directory to disk."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _replace(partial: Path, directory: Path) -> None:
    """Rename the directory to its final name, replacing an existing one."""
    old = directory.with_name(f".{directory.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        directory.rename(old)
    partial.rename(directory)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _storing(path: Path) -> Iterator[None]:
    with storing(path):
        try:
            yield
        except tf.errors.OpError as error:
            raise StorageError(path, OSError(first_line(error))) from error


EXPORT_DIRECTORY: Final = "export"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of an export."""

    forms: tuple[str, ...] = ()
    """Names of the exported files and directories."""
    onnx_refused: str | None = None
    """Reason why a requested model.onnx was not written."""


def export_at_end(run_dir: Path, spec: ModelSpec, state: TrainState, steps: int) -> Exported:
    """Export a trained network as its settings request; return the names of the exported files. Raises StorageError.

    Without such a request, nothing is exported. If the network cannot be converted to ONNX, model.onnx is left out, and
    the result contains the reason.
    """
    settings, directory = spec.settings, run_dir / EXPORT_DIRECTORY
    if not (settings.export or settings.export_onnx):
        return Exported()
    refused: str | None = None
    if settings.export_onnx:
        try:
            export_network(directory, spec, state, steps, onnx=True)
            return Exported(forms=(KERAS_FILE, SAVED_MODEL, ONNX_FILE))
        except OnnxError as error:
            refused = str(error)
    export_network(directory, spec, state, steps)
    return Exported(forms=(KERAS_FILE, SAVED_MODEL), onnx_refused=refused)
