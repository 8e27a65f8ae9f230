"""The description of an exported network, model.json, and where to find both. Standard library only."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Final

from agent.errors import ReportedError

KERAS_FILE: Final = "model.keras"
SAVED_MODEL: Final = "saved_model"
ONNX_FILE: Final = "model.onnx"
DESCRIPTION_FILE: Final = "model.json"
KINDS: Final = "a .keras file, an .onnx file or a SavedModel"
"""What can be loaded by itself, as arguments and errors name it."""


class ModelError(ReportedError, ValueError):
    """Report a model that is missing or invalid; the message names the path."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnnxFile:
    """Describe model.onnx of an export."""

    opset: int
    """Version of ONNX's operations."""
    bytes: int
    largest_difference: float
    """By how much a probability of ONNX Runtime's differed at most from Keras's own, on trial images."""
    versions: dict[str, str]
    """Of the packages that converted and checked it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Describe an exported network."""

    recipe: str
    network: str
    dataset: str
    labels: tuple[str, ...]
    """Names of the classes, in their order."""
    size: tuple[int, int]
    """Height and width of the images that it takes, pixels."""
    channels: int
    rectangular: bool
    """Whether test images keep about their aspect ratio."""
    margin: float
    """Fraction of a test image's shorter side that is used."""
    data_dir: str | None
    """Location of the training data."""
    settings: dict[str, Any]
    """The settings of its run."""
    steps: int
    """Steps of the run at which it was exported."""
    averaged: bool
    """Whether its weights are their moving average."""
    weights_sha256: str
    """Digest of the state of the run that it comes from."""
    versions: dict[str, str]
    """Of TensorFlow and Keras, which wrote it."""
    onnx: OnnxFile | None = None
    """Its form as ONNX, in exports; None where there is none."""


def read_card(folder: Path) -> ModelCard | None:
    """Read model.json; None where there is none. Raises ModelError."""
    path = folder / DESCRIPTION_FILE
    try:
        return card_from(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error


def card_from(text: str, path: Path) -> ModelCard:
    """Return the card that a text of `path` holds. Raises ModelError."""
    try:
        document: dict[str, Any] = json.loads(text)
        onnx = OnnxFile(**document["onnx"]) if document.get("onnx") else None
        own = {"labels": tuple(document["labels"]), "size": _pair(document["size"]), "onnx": onnx}
        return ModelCard(**{**document, **own})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: does not describe a model: {error}; export it again") from error


def _pair(value: Any) -> tuple[int, int]:
    height, width = value
    return int(height), int(width)


def locate(given: Path) -> tuple[Path, Path]:
    """Return the model to load and the folder that describes it; of several forms Keras's, then ONNX, then SavedModel.

    `given`: an export, a run's directory with one, a .keras file, an .onnx file, or a SavedModel. Raises ModelError.
    """
    if not given.exists():
        raise ModelError(f"{given}: no such file or directory; give an export, {KINDS}")
    if given.is_file():
        if given.suffix not in (".keras", ".onnx"):
            raise ModelError(f"{given}: is no model; give {KINDS}, or the directory of an export")
        return given, given.parent
    if (given / "saved_model.pb").is_file():
        return given, given.parent
    for folder in (given, given / "export"):
        for name in (KERAS_FILE, ONNX_FILE):
            if (folder / name).is_file():
                return folder / name, folder
        if (folder / SAVED_MODEL).is_dir():
            return folder / SAVED_MODEL, folder
    raise ModelError(
        f"{given}: holds no exported model; train with --export, or make one of a checkpoint with "
        f"`python -m payload.export --run-dir {given}`"
    )
