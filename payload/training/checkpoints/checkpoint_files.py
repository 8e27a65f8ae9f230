"""Save and load the checkpoints of one run. A manifest with a SHA-256 makes damage detectable.

    checkpoints/step-00000460/arrays.safetensors   every variable of model and optimizer
    checkpoints/step-00000460/manifest.json        position in the run, its settings, size and SHA-256 of the arrays

Order, augmentation and learning rate depend only on the settings and the position (epoch, step). The seeds of dropout
are variables of the model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from agent.errors import ReportedError, malformed
from agent.staging.s3_objects import Prefix
from agent.staging.s3_streams import BucketClient
from payload.settings import Settings
from payload.settings.training import parse_checkpoint_dir
from payload.training.checkpoints.checkpoint_storage import (
    ARRAYS,
    MANIFEST,
    CheckpointStorage,
    DirectoryStorage,
    S3Storage,
)
from payload.training.checkpoints.save_policy import Retention, Standing
from payload.training.progress import Progress
from payload.training.safetensors_io import Arrays, HashingFile, TensorFileError, read_tensors, size_of, write_tensors


class SupersededError(ReportedError, RuntimeError):
    """Another process has started to write checkpoints at `address`."""

    def __init__(self, address: str, writer: str) -> None:
        self.address = address
        super().__init__(
            f"{writer} has started to write checkpoints to {address}, so this process stops writing there and exits; "
            "if you started both, give each run its own --checkpoint-dir"
        )


def _described(writer: bytes) -> str:
    """Describe a writer for a message. Its record may be invalid, because anyone may have written the file."""
    try:
        fields = json.loads(writer)
        return f"process {int(fields['pid'])} on {str(fields['host'])[:64]!r}"
    except (ValueError, KeyError, TypeError):
        return "another process"


_FORMAT: Final = 2

KeptSettings = Mapping[str, Any]
"""Settings stored in a checkpoint: JSON values by name."""


class DamagedCheckpointError(ReportedError, ValueError):
    """A checkpoint does not match its manifest, or cannot be read. `fault`: the reason.

    `is_lost`: neither another attempt nor another version could read it.
    """

    def __init__(self, address: str, fault: str, *, is_lost: bool = False) -> None:
        self.address, self.fault, self.is_lost = address, fault, is_lost
        super().__init__(f"{address}: {'damaged' if is_lost else 'unusable'} checkpoint: {fault}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """The content of a manifest."""

    progress: Progress
    settings: KeptSettings
    """Settings of the run that wrote the checkpoint."""
    accuracy: float | None
    """Accuracy on the test images, 0 to 1; None if it was not measured at this step."""
    bytes: int
    sha256: str
    """SHA-256 of the file of arrays."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was read and verified."""

    name: str
    address: str
    header: Header
    arrays: Arrays

    @property
    def progress(self) -> Progress:
        """Return the checkpoint's position in the run."""
        return self.header.progress


def name_of(progress: Progress) -> str:
    """Return the name of the checkpoint at a position. Names sort by age."""
    return f"step-{progress.total_steps:08d}"


class CheckpointStore:
    """Save, load and retain the checkpoints of one run."""

    def __init__(self, storage: CheckpointStorage, retention: Retention) -> None:
        """Set the storage and the retention, without reading or writing."""
        self.storage, self.retention = storage, retention
        self._writer = b""
        """This process's record as the writer; empty until `claim`."""
        self._standings: dict[str, Standing] = {}
        self._damaged: set[str] = set()

    def claim(self) -> None:
        """Record this process as the only writer. An earlier writer then stops at its next checkpoint.

        Raises ReportedError if the storage is not writable.
        """
        fields = {"id": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid()}
        writer = json.dumps({**fields, "time": round(time.time(), 3)}).encode()
        self.storage.set_writer(writer)
        self._writer = writer

    def check_claim(self) -> None:
        """Raise SupersededError if another process has claimed the storage since `claim`. Without a claim, do nothing.

        Raises ReportedError if the record of the writer cannot be read.
        """
        found = self.storage.writer() if self._writer else None
        if found is not None and found != self._writer:
            raise SupersededError(self.storage.address(), _described(found))

    def names(self) -> list[str]:
        """Return the names of the complete checkpoints, newest first. They are verified only when read.

        Raises BucketError if a bucket cannot be read.
        """
        return self.storage.names()

    def save(
        self, progress: Progress, arrays: Arrays, *, settings: KeptSettings | None = None, accuracy: float | None = None
    ) -> tuple[str, int]:
        """Write a checkpoint durably, then remove those not retained; return its name and size in bytes.

        A checkpoint at the same position is replaced. Raises ReportedError, for example if the disk is full. Earlier
        checkpoints then stay unchanged. Raises SupersededError if another process has claimed the storage since
        `claim`.
        """
        name = name_of(progress)
        size = size_of(arrays)
        self.check_claim()

        def fill(file: IO[bytes]) -> bytes:
            hashed = HashingFile(file)
            write_tensors(hashed, arrays)
            self.check_claim()  # again, because writing the arrays of a large network takes minutes
            header = Header(
                progress=progress,
                settings=settings or {},
                accuracy=accuracy,
                bytes=hashed.bytes,
                sha256=hashed.sha256,
            )
            return json.dumps({"format": _FORMAT, **dataclasses.asdict(header)}, indent=1).encode()

        self.storage.put(name, size, fill)
        self._damaged.discard(name)
        self._standings[name] = Standing(accuracy=accuracy, ends_epoch=progress.step == 0)
        self._retain(name)
        return name, size

    def best_accuracy(self) -> float | None:
        """Return the best accuracy of the checkpoints not known to be damaged; None without measurements.

        Raises BucketError if a bucket cannot be read.
        """
        found = self._update_standings(self.names())
        return max((one.accuracy for one in found.values() if one.accuracy is not None), default=None)

    def global_batch(self) -> int | None:
        """Return the run's batch in its first epoch, from the newest readable manifest; None if there is none.

        Raises BucketError if a bucket cannot be read.
        """
        for name in self.names():
            with contextlib.suppress(DamagedCheckpointError):
                return read_header(self.storage, name).progress.global_batch
        return None

    def newest_valid(self) -> tuple[Checkpoint | None, list[DamagedCheckpointError]]:
        """Read the newest valid checkpoint; return it, or None, and the faults of the damaged ones that were skipped.

        Skipped checkpoints no longer count for retention. They are removed after a newer one has been written. Raises
        BucketError if a bucket cannot be read.
        """
        faults: list[DamagedCheckpointError] = []
        for name in self.names():
            try:
                return read_checkpoint(self.storage, name), faults
            except DamagedCheckpointError as fault:
                faults.append(fault)
                self._damaged.add(name)
        return None, faults

    def _retain(self, written: str) -> None:
        """Remove the checkpoints that are no longer retained, after `written` was saved.

        A damaged checkpoint is removed only if it is older than `written`.
        """
        names = self.names()
        kept = self.retention.kept(self._update_standings(names))
        for name in names:
            if name not in kept and (name not in self._damaged or name < written):
                self.storage.remove(name)
                self._standings.pop(name, None)
                self._damaged.discard(name)

    def _update_standings(self, names: list[str]) -> dict[str, Standing]:
        """Update the cache of standings, and return it. It has the checkpoints in `names` not known to be damaged.

        A standing has the properties that decide whether a checkpoint is retained. Missing standings are read from the
        manifests. Standings of other checkpoints are dropped.
        """
        known = self._standings
        sound = [name for name in names if name not in self._damaged]
        self._standings = {name: known[name] if name in known else self._standing(name) for name in sound}
        return self._standings

    def _standing(self, name: str) -> Standing:
        try:
            header = read_header(self.storage, name)
        except DamagedCheckpointError:
            return Standing(accuracy=None, ends_epoch=False)
        return Standing(accuracy=header.accuracy, ends_epoch=header.progress.step == 0)


def read_header(storage: CheckpointStorage, name: str) -> Header:
    """Read and check a checkpoint's manifest.

    Raises DamagedCheckpointError if the manifest is missing, unreadable, malformed or of another format. If no other
    attempt or version could read it, the error's `is_lost` is set. Raises BucketError if a bucket cannot be read.
    """
    address = storage.address(name)
    try:
        manifest = json.loads(storage.manifest(name))
        number = manifest.pop("format")
    except OSError as error:
        raise _unreadable(address, error, MANIFEST) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpointError(address, f"the manifest is malformed: {malformed(error)}", is_lost=True) from error
    if number != _FORMAT:
        raise DamagedCheckpointError(
            address, f"{MANIFEST} has format {number}, but this version of deepcdk reads format {_FORMAT}"
        )
    try:
        progress = Progress(**manifest.pop("progress"))
        header = Header(progress=progress, **manifest)
        _require_types(header)
    except TypeError as error:
        raise DamagedCheckpointError(address, f"{MANIFEST} has missing or unknown fields") from error
    except (ValueError, KeyError) as error:
        raise DamagedCheckpointError(address, f"the manifest is malformed: {malformed(error)}") from error
    return header


def read_checkpoint(storage: CheckpointStorage, name: str) -> Checkpoint:
    """Read all arrays of a checkpoint into memory, and verify them against its manifest.

    Raises DamagedCheckpointError if a file is missing, unreadable or malformed, or if size or SHA-256 differ. Raises
    BucketError if a bucket cannot be read.
    """
    header, address = read_header(storage, name), storage.address(name)
    try:
        with storage.arrays(name) as file:
            hashed = HashingFile(file)
            arrays = read_tensors(hashed, header.bytes)
            if file.read(1):
                fault = f"{ARRAYS} has more bytes than its manifest states"
                raise DamagedCheckpointError(address, fault, is_lost=True)
    except OSError as error:
        raise _unreadable(address, error, ARRAYS) from error
    except TensorFileError as error:
        fault = f"{ARRAYS} does not match its manifest: {error}"
        raise DamagedCheckpointError(address, fault, is_lost=True) from error
    if hashed.sha256 != header.sha256:
        fault = f"the SHA-256 of {ARRAYS} differs from the one in its manifest"
        raise DamagedCheckpointError(address, fault, is_lost=True)
    return Checkpoint(name=name, address=address, header=header, arrays=arrays)


def _unreadable(address: str, error: OSError, file: str) -> DamagedCheckpointError:
    """Return the error for an unreadable file. It is lost if it does not exist; otherwise a retry may succeed."""
    is_lost = isinstance(error, FileNotFoundError)
    return DamagedCheckpointError(address, f"{error.filename or file}: {error.strerror}", is_lost=is_lost)


def _require_types(header: Header) -> None:
    for owner, whole in ((header.progress, ("epoch", "step", "total_steps", "global_batch")), (header, ("bytes",))):
        for name in whole:
            value = getattr(owner, name)
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} is {value!r}, but must be a whole number of 0 or more")
    if not isinstance(header.settings, dict):
        raise ValueError("settings is not a JSON object")


def storage_for(checkpoint_dir: str, run_dir: Path) -> CheckpointStorage:
    """Return the storage at `--checkpoint-dir`, or for "" the default in the run's directory, without accessing it.

    Raises SettingError for an invalid address.
    """
    location = parse_checkpoint_dir(checkpoint_dir)
    if isinstance(location, Prefix):
        return S3Storage(BucketClient(location))
    return DirectoryStorage(location or run_dir / "checkpoints")


def store_for(settings: Settings, run_dir: Path) -> CheckpointStore:
    """Return the checkpoint store that a run's settings describe, without accessing it.

    Raises SettingError for an invalid `--checkpoint-dir`.
    """
    retention = Retention(newest=settings.keep_checkpoints, best=settings.keep_best)
    return CheckpointStore(storage_for(settings.checkpoint_dir, run_dir), retention)
