"""The description of an exported network, model.json, and where to find both. Standard library only."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Final

from agent.errors import ReportedError

KERAS_FILE: Final = "model.keras"
SAVED_MODEL: Final = "saved_model"
DESCRIPTION_FILE: Final = "model.json"


class ModelError(ReportedError, ValueError):
    """Report a model that is missing or invalid; the message names the path."""


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


def read_card(folder: Path) -> ModelCard | None:
    """Read model.json; None where there is none. Raises ModelError."""
    path = folder / DESCRIPTION_FILE
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return ModelCard(**{**document, "labels": tuple(document["labels"]), "size": _pair(document["size"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: does not describe a model: {error}; export it again") from error


def _pair(value: Any) -> tuple[int, int]:
    height, width = value
    return int(height), int(width)


def locate(given: Path) -> tuple[Path, Path]:
    """Return the model to load, preferring Keras's format, and the folder that describes it.

    `given`: an export, a run's directory with one, a .keras file, or a SavedModel. Raises ModelError.
    """
    if not given.exists():
        raise ModelError(f"{given}: no such file or directory; give an export, a .keras file or a SavedModel")
    if given.is_file():
        if given.suffix != ".keras":
            raise ModelError(f"{given}: is no .keras file; give one, or the directory of an export")
        return given, given.parent
    if (given / "saved_model.pb").is_file():
        return given, given.parent
    for folder in (given, given / "export"):
        for name in (KERAS_FILE, SAVED_MODEL):
            if (folder / name).exists():
                return folder / name, folder
    raise ModelError(
        f"{given}: holds no exported model; train with --export, or make one of a checkpoint with "
        f"`python -m payload.export --run-dir {given}`"
    )
