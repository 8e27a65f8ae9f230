"""The export at the end of a run, in the forms that its settings ask for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from payload.training.export.model_card import KERAS_FILE, ONNX_FILE, SAVED_MODEL
from payload.training.export.model_spec import ModelSpec
from payload.training.export.onnx_conversion import OnnxError
from payload.training.export.saved_model import export_network
from payload.training.state import TrainState

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
