"""The result of a run, result.json, which is written when the run completes.

For settings.json, written at the start, see `payload.training.export.settings_file`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import replace_file

RESULT_FILE: Final = "result.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """Mean loss, and accuracies from 0 to 1, over one split of the data."""

    loss: float
    accuracy: float
    top5_accuracy: float
    """Fraction of images with the correct class in the top five."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provenance:
    """The version of the code, as passed by the launcher."""

    payload_hash: str | None
    """SHA-256 of the pushed files; None if the launcher did not pass it."""
    git_commit: str | None
    """Git commit from which the files were pushed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The content of result.json: the result of a completed run."""

    recipe: str
    variant: str | None
    test_accuracy: float
    """Fraction of test images that were classified correctly."""
    test_top5_accuracy: float
    test_loss: float
    validation_accuracy: float | None
    """Accuracy after the last epoch on images held back from training; None if no images were held back."""
    validation_loss: float | None
    train_accuracy: float | None
    """None if a resumed run had no epochs left to train."""
    train_loss: float | None
    epochs: int
    steps: int
    """Training steps of the whole run, over all attempts."""
    skipped_records: int
    """Damaged records that were skipped on request, over all epochs."""
    seconds: float
    """Wall time of this process, from its start to the result."""
    training_seconds: float
    """Part of `seconds` spent in training steps."""
    epoch_seconds: tuple[float, ...]
    """Wall time of each epoch that this process ran, including evaluation."""
    data_wait_seconds: float
    """Time spent waiting for training images. Each epoch counts with the rank that waited longest."""
    checkpoint_seconds: float
    """Time lost to checkpoints: training waited for them, or its steps were slower while one was written."""
    checkpoints_missed: tuple[str, ...]
    """Checkpoints that could not be written (for example, the disk was full), each with the reason."""
    images_per_s: float
    """Training images over all ranks per second of `training_seconds`."""
    ranks: int
    hosts: tuple[str, ...]
    """Host name of each rank, by rank."""
    global_batch: int
    peak_learning_rate: float
    seed: int
    resumed_from: str | None
    """Name of the checkpoint from which the run resumed."""
    passed_over: tuple[str, ...]
    """Damaged checkpoints that were skipped when the run resumed, each with the fault."""
    weights_sha256: str
    """Digest of the final weights."""
    parameters: int
    settings: Mapping[str, Any]
    """Every setting of the run."""
    arrangement: Mapping[str, Any]
    """Machine, placement, threads and Horovod settings of rank 0, with notes."""
    placements: tuple[str, ...]
    """Description of each rank's cores, memory and GPU, by rank."""
    versions: Mapping[str, str]
    """Versions of python, tensorflow, keras, horovod and numpy."""
    payload_hash: str | None
    git_commit: str | None
    finished: float
    """Unix time at which the run completed."""
    exported: tuple[str, ...] = ()
    """Names of the exported files and directories in the directory `export`."""
    onnx_refused: str | None = None
    """Reason why a requested model.onnx was not written."""


def write_result(run_dir: Path, result: Result) -> Path:
    """Write result.json to the run's directory atomically, and return its path. Raises StorageError."""
    path = run_dir / RESULT_FILE
    replace_file(path, json.dumps(dataclasses.asdict(result), indent=2).encode() + b"\n")
    return path
