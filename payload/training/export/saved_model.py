"""The trained network as files that need nothing of this project.

    export/model.keras     Keras 3's format, of Keras's own layers alone
    export/saved_model/    TensorFlow's, for TensorFlow Serving and other languages
    export/model.onnx      on request: ONNX's, for ONNX Runtime and other frameworks
    export/model.json      size of the images, names of the classes, origin

All take uint8 images [B, height, width, channels] as they are in a file, and give probabilities, float32 [B, classes];
the SavedModel's signature `serving_default` and the ONNX file give the likeliest class too. What the images go through
on their way to the network is inside.
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
from payload.training.export.model_card import DESCRIPTION_FILE, KERAS_FILE, ONNX_FILE, SAVED_MODEL, ModelCard
from payload.training.export.model_spec import ModelSpec
from payload.training.export.onnx_conversion import OnnxError
from payload.training.export.onnx_file import write_onnx
from payload.training.export.serving import serving_model
from payload.training.state import TrainState


def export_network(directory: Path, spec: ModelSpec, state: TrainState, steps: int, *, onnx: bool = False) -> ModelCard:
    """Write the network of a run after so many steps, averaged if its average is evaluated.

    `onnx`: also as ONNX. Raises StorageError, OnnxError.
    """
    with state.averaged():
        return write_export(directory, state.model, card_of(spec, state, steps), onnx=onnx)


def write_export(directory: Path, network: Any, card: ModelCard, *, onnx: bool = False) -> ModelCard:
    """Write a network, float32 images 0 to 1 to logits, atomically, and return its card.

    An existing directory is replaced. `onnx`: also as ONNX. Raises StorageError, OnnxError.
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
    """Describe the network of a run as it is after so many steps."""
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
    """Write the files to disk before their directory gets its name."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _replace(partial: Path, directory: Path) -> None:
    """Rename the directory, in place of one of that name."""
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
            raise StorageError(path, OSError(error.message)) from error


EXPORT_DIRECTORY: Final = "export"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """What was exported."""

    forms: tuple[str, ...] = ()
    """Names of the files and directories that hold the network."""
    onnx_refused: str | None = None
    """Why there is no ONNX among them, where it was asked for."""


def export_at_end(run_dir: Path, spec: ModelSpec, state: TrainState, steps: int) -> Exported:
    """Export a trained network as its settings ask. Raises StorageError.

    A network that cannot be had as ONNX is exported without it, and the reason kept: the training is not lost for it.
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
