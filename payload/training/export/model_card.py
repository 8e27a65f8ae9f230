"""Describe an exported network (model.json), and find its files. Standard library only."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Final

from agent.errors import ReportedError, unreadable

KERAS_FILE: Final = "model.keras"
SAVED_MODEL: Final = "saved_model"
ONNX_FILE: Final = "model.onnx"
DESCRIPTION_FILE: Final = "model.json"
KINDS: Final = "a .keras file, an .onnx file or a SavedModel"
"""The loadable file formats, as named in help texts and errors."""
EXPORT_AGAIN: Final = "export the network again with `python -m payload.export --run-dir DIR`"


class ModelError(ReportedError, ValueError):
    """A model is missing or invalid, or does not take the given images."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnnxFile:
    """Description of an export's model.onnx."""

    opset: int
    """Version of the ONNX operator set."""
    bytes: int
    largest_difference: float
    """Largest difference between the probabilities of ONNX Runtime and Keras on test images."""
    versions: dict[str, str]
    """Versions of the packages that converted and checked the file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Description of an exported network, stored in model.json."""

    recipe: str
    network: str
    dataset: str
    labels: tuple[str, ...]
    """Names of the classes, ordered by number."""
    size: tuple[int, int]
    """Height and width of the network's input images, pixels."""
    channels: int
    rectangular: bool
    """Whether test images roughly keep their aspect ratio."""
    margin: float
    """Fraction of a test image's shorter side to use."""
    data_dir: str | None
    """Location of the training data."""
    settings: dict[str, Any]
    """Settings of the run that trained it."""
    steps: int
    """Number of training steps at the time of the export."""
    averaged: bool
    """Whether the weights are the moving average."""
    weights_sha256: str
    """Digest of the training state that was exported."""
    versions: dict[str, str]
    """Versions of TensorFlow and Keras."""
    onnx: OnnxFile | None = None
    """Description of model.onnx; None if the export has none."""


def read_card(folder: Path) -> ModelCard | None:
    """Read model.json in a folder; return None if it does not exist. Raises ModelError if it is damaged."""
    path = folder / DESCRIPTION_FILE
    try:
        return card_from(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = f"cannot be read: {unreadable(error)}; make it readable, or {EXPORT_AGAIN}"
        raise ModelError(f"{path}: {why}") from error


def card_from(text: str, path: Path) -> ModelCard:
    """Parse the JSON text of a model card. `path`: file to name in a ModelError, which a malformed text raises."""
    try:
        document: dict[str, Any] = json.loads(text)
        onnx = OnnxFile(**document["onnx"]) if document.get("onnx") else None
        own = {"labels": tuple(document["labels"]), "size": _pair(document["size"]), "onnx": onnx}
        return ModelCard(**{**document, **own})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = str(error) if isinstance(error, ValueError) else "missing or unknown fields"
        raise ModelError(f"{path}: is not the description of a model: {what}; {EXPORT_AGAIN}") from error


def _pair(value: Any) -> tuple[int, int]:
    if [type(number) for number in value] != [int, int]:
        raise ValueError("size must be two whole numbers, height and width")
    height, width = value
    return height, width


def locate(given: Path) -> tuple[Path, Path]:
    """Return the model file to load and the directory of its model.json. Keras is preferred to ONNX and SavedModel.

    `given`: an export, a run's directory with an export, a .keras file, an .onnx file, or a SavedModel. Raises
    ModelError if it is none of these. The model.json may be missing.
    """
    if not given.exists():
        raise ModelError(f"{given}: no such file or directory; pass {KINDS}, or the directory of an export")
    if given.is_file():
        if given.suffix not in (".keras", ".onnx"):
            raise ModelError(f"{given}: is not a model; pass {KINDS}, or the directory of an export")
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
        f"{given}: contains no exported model; train with --export, or export a checkpoint with "
        f"`python -m payload.export --run-dir {given}`"
    )
