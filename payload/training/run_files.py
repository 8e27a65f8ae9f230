"""Files of a run for people and programs: metrics.jsonl while it runs, result.json at its end.

settings.json, written at its start, is that of `payload.training.export.model_spec`.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from agent.files.atomic_write import replace_file, storing

METRICS_FILE: Final = "metrics.jsonl"
RESULT_FILE: Final = "result.json"
STEP_INTERVAL_S: Final = 0.5
"""Least time between two step events: enough for a live display, and small files."""

Value = float | int | str | bool | None


class Metrics:
    """Append events to metrics.jsonl, one JSON object a line, each complete as soon as it is written."""

    def __init__(self, run_dir: Path, *, started: float) -> None:
        """Open the file. `started`: unix time from which the run's seconds count. Raises StorageError."""
        self._path = run_dir / METRICS_FILE
        self._started = started
        self._last_step = -STEP_INTERVAL_S
        with storing(self._path):
            run_dir.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = self._path.open("ab", buffering=0)
            self._end_cut_line()

    def _end_cut_line(self) -> None:
        """End a line that a crash cut short, so that it does not spoil the next one."""
        content_end = self._file.tell()
        if content_end:
            with self._path.open("rb") as file:
                file.seek(content_end - 1)
                if file.read(1) != b"\n":
                    self._file.write(b"\n")

    def event(self, event: str, **values: Value) -> None:
        """Append one event with the time. Raises StorageError."""
        now = time.time()
        record: dict[str, Value] = {"event": event, "time": round(now, 3), "elapsed_s": round(now - self._started, 3)}
        record.update({name: round(v, 6) if isinstance(v, float) else v for name, v in values.items()})
        with storing(self._path):
            self._file.write(json.dumps(record).encode() + b"\n")

    def step_due(self) -> bool:
        """Return whether the next step event is due, and if so count it as written."""
        now = time.monotonic()
        if now - self._last_step < STEP_INTERVAL_S:
            return False
        self._last_step = now
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """Mean loss, and accuracies of 0 to 1, over one split of the data."""

    loss: float
    accuracy: float
    top5_accuracy: float
    """Fraction of the images whose class is among the five likeliest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provenance:
    """The code that ran, as the launcher states it."""

    payload_hash: str | None
    """SHA-256 of the pushed tree; None where the launcher does not state it."""
    git_commit: str | None
    """Commit of the checkout it was pushed from."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a completed run."""

    recipe: str
    variant: str | None
    test_accuracy: float
    """Fraction of the test images recognised, 0 to 1."""
    test_top5_accuracy: float
    test_loss: float
    validation_accuracy: float | None
    """Of the last epoch, on images held back from training; None where none were."""
    validation_loss: float | None
    train_accuracy: float | None
    """None where a resumed run had nothing left to train."""
    train_loss: float | None
    epochs: int
    steps: int
    """Steps of the whole run, over all its resumptions."""
    skipped_records: int
    """Damaged records left out on request, over all epochs."""
    seconds: float
    """Wall time of this process, from its start to the result."""
    training_seconds: float
    """Fraction of it within training steps."""
    epoch_seconds: tuple[float, ...]
    """Wall time of each epoch that this process took, evaluation included."""
    data_wait_seconds: float
    """Sum over these epochs of how long the rank that waited longest waited for images to train on."""
    checkpoint_seconds: float
    """Time that checkpoints took of it: training waited, or its steps were longer while one was written."""
    checkpoints_missed: tuple[str, ...]
    """Checkpoints that could not be written, as on a full disk, each with the reason."""
    images_per_s: float
    """Training images over all ranks per second of `training_seconds`."""
    ranks: int
    hosts: tuple[str, ...]
    """Name of each rank's host, by rank."""
    global_batch: int
    peak_learning_rate: float
    seed: int
    resumed_from: str | None
    """Name of the checkpoint it continued from."""
    passed_over: tuple[str, ...]
    """Damaged checkpoints that were skipped for it, and what was wrong with each."""
    weights_sha256: str
    """Digest of the final weights."""
    parameters: int
    settings: Mapping[str, Any]
    """Every setting of the run."""
    arrangement: Mapping[str, Any]
    """What was chosen for rank 0: threads and Horovod's settings, and the reasons."""
    placements: tuple[str, ...]
    """Cores, memory and GPU of each rank, by rank."""
    versions: Mapping[str, str]
    """Versions of python, tensorflow, keras, horovod and numpy."""
    payload_hash: str | None
    git_commit: str | None
    finished: float
    """Unix time of the end."""
    exported: tuple[str, ...] = ()
    """Forms of the network in the directory `export`, by name of the file or directory."""
    onnx_refused: str | None = None
    """Why there is no model.onnx among them, where one was asked for."""


def write_result(run_dir: Path, result: Result) -> Path:
    """Write result.json atomically. Raises StorageError."""
    path = run_dir / RESULT_FILE
    replace_file(path, json.dumps(dataclasses.asdict(result), indent=2).encode() + b"\n")
    return path
