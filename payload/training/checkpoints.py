"""Checkpoints: directories that appear whole or not at all, each with a manifest by which damage is found.

    checkpoints/step-00000460/arrays.npz      every variable of model and optimizer
    checkpoints/step-00000460/manifest.json   position in the run, size and SHA-256 of arrays.npz

The position (epoch, step) is all that order, augmentation and learning rate depend on besides the seed, so it restores
the random state and the schedule as well.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from payload.durable import replace_file, storing, sync_directory
from payload.errors import PayloadError
from payload.training.progress import Progress

_ARRAYS: Final = "arrays.npz"
_MANIFEST: Final = "manifest.json"
_PREFIX: Final = "step-"
_FORMAT: Final = 1

Arrays = Mapping[str, npt.NDArray[Any]]


class DamagedCheckpointError(PayloadError, ValueError):
    """Report a checkpoint that its manifest contradicts. Carries `path` and `fault`."""

    def __init__(self, path: Path, fault: str) -> None:
        self.path, self.fault = path, fault
        super().__init__(f"{path}: damaged checkpoint: {fault}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Hold what was read from one checkpoint."""

    path: Path
    progress: Progress
    arrays: Arrays


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointStore:
    """Keep the newest checkpoints of one run."""

    directory: Path
    keep: int

    def paths(self) -> list[Path]:
        """List the complete checkpoints, the newest first; whether they are valid shows when they are read."""
        return sorted(self.directory.glob(f"{_PREFIX}*"), key=lambda path: path.name, reverse=True)

    def save(self, progress: Progress, arrays: Arrays) -> Path:
        """Write a checkpoint, make it last, then remove those beyond `keep`.

        Raises StorageError, for instance where the disk is full; earlier checkpoints are then untouched.
        """
        path = self.directory / f"{_PREFIX}{progress.total_steps:08d}"
        partial = self.directory / f".partial-{path.name}"
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        content = buffer.getvalue()
        manifest = {
            "format": _FORMAT,
            "progress": dataclasses.asdict(progress),
            "arrays": {"file": _ARRAYS, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()},
        }
        with storing(path):
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                replace_file(partial / _ARRAYS, content)
                replace_file(partial / _MANIFEST, json.dumps(manifest, indent=1).encode())
                if path.exists():  # the same step again, after a resume: what is there is of the same run
                    shutil.rmtree(path)
                partial.rename(path)
                sync_directory(self.directory)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        for old in self.paths()[self.keep :]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def newest_valid(self) -> tuple[Checkpoint | None, list[DamagedCheckpointError]]:
        """Read the newest checkpoint that is whole, and return it with the faults of those passed over."""
        faults: list[DamagedCheckpointError] = []
        for path in self.paths():
            try:
                return read_checkpoint(path), faults
            except DamagedCheckpointError as fault:
                faults.append(fault)
        return None, faults


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint and verify it against its manifest. Raises DamagedCheckpointError."""
    try:
        manifest = json.loads((path / _MANIFEST).read_bytes())
        progress = Progress(**manifest["progress"])
        size, sha256 = manifest["arrays"]["bytes"], manifest["arrays"]["sha256"]
        content = (path / _ARRAYS).read_bytes()
    except OSError as error:
        raise DamagedCheckpointError(path, f"{error.filename}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(path, f"its manifest cannot be read: {error!r}") from error
    if manifest.get("format") != _FORMAT:
        raise DamagedCheckpointError(path, f"format {manifest.get('format')}; this version reads {_FORMAT}")
    if len(content) != size:
        raise DamagedCheckpointError(path, f"{_ARRAYS} has {len(content)} bytes; its manifest says {size}")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DamagedCheckpointError(path, f"{_ARRAYS} does not have the SHA-256 of its manifest")
    try:
        with contextlib.closing(np.load(io.BytesIO(content), allow_pickle=False)) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise DamagedCheckpointError(path, f"{_ARRAYS} cannot be read: {error}") from error
    return Checkpoint(path=path, progress=progress, arrays=arrays)
