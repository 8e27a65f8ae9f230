"""Store checkpoints in a directory or below a prefix of a bucket. Standard library only.

Each checkpoint has a name, a file of arrays and a manifest, and is written atomically. Names sort by age. Storage
does not interpret the files. In a bucket, the manifest is one object and is written last, so a checkpoint exists as
soon as its manifest does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from agent.files.atomic_write import replace_file, storing, sync_directory
from agent.staging.s3_streams import BucketClient, BucketError

ARRAYS: Final = "arrays.safetensors"
MANIFEST: Final = "manifest.json"
WRITER: Final = "writer.json"
"""File next to the checkpoints that identifies the process writing them."""
NAME: Final = re.compile(r"step-\d{8,}")

Fill = Callable[[IO[bytes]], bytes]
"""Writes the arrays to a file and returns the manifest."""


class DirectoryStorage:
    """Store checkpoints in a directory on a disk or a shared file system. Each checkpoint is a subdirectory.

    While a checkpoint is written or removed, its directory has a unique name that begins with a dot.
    """

    def __init__(self, path: Path) -> None:
        """Set the directory. It need not exist."""
        self.path = path

    def address(self, name: str = "") -> str:
        """Return the path of a checkpoint, or of the directory if `name` is "". It need not exist."""
        return str(self.path / name)

    def names(self) -> list[str]:
        """Return the names of the complete checkpoints, newest first."""
        names = [path.name for path in self.path.glob("step-*") if NAME.fullmatch(path.name)]
        return sorted(names, reverse=True)

    def put(self, name: str, size: int, fill: Fill) -> None:
        """Write a checkpoint under a temporary name, then rename it. A checkpoint with the same name is replaced.

        `fill` writes the arrays to a file, and returns the manifest. `size` is not used here. Raises StorageError, and
        errors of `fill`.
        """
        path, partial = self.path / name, self.path / f".partial-{name}-{uuid.uuid4().hex}"
        with storing(path):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                partial.mkdir()
                with (partial / ARRAYS).open("wb") as file:
                    manifest = fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                replace_file(partial / MANIFEST, manifest)
                if path.exists():  # a resumed run repeats this step because the existing checkpoint was damaged
                    self.remove(name)
                partial.rename(path)
                sync_directory(self.path)
            finally:
                shutil.rmtree(partial, ignore_errors=True)

    def manifest(self, name: str) -> bytes:
        """Read a checkpoint's manifest. Raises OSError."""
        return (self.path / name / MANIFEST).read_bytes()

    @contextlib.contextmanager
    def arrays(self, name: str) -> Iterator[IO[bytes]]:
        """Open the file of a checkpoint's arrays for reading within a block. Raises OSError."""
        with (self.path / name / ARRAYS).open("rb") as file:
            yield file

    def remove(self, name: str) -> None:
        """Remove a checkpoint, ignoring failures. It is renamed first, so that no reader sees it partially removed."""
        gone = self.path / f".removed-{name}-{uuid.uuid4().hex}"
        with contextlib.suppress(OSError):
            (self.path / name).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def tidy(self) -> None:
        """Remove partially written and partially removed checkpoints."""
        for kind in ("partial", "removed"):
            for path in self.path.glob(f".{kind}-step-*"):
                shutil.rmtree(path, ignore_errors=True)

    def set_writer(self, writer: bytes) -> None:
        """Record the process that writes to this storage. Raises StorageError."""
        with storing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        replace_file(self.path / WRITER, writer)

    def writer(self) -> bytes | None:
        """Return what the latest `set_writer` of any process wrote; None if there was none. Raises StorageError."""
        path = self.path / WRITER
        with storing(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None


ATTEMPTS: Final = 3
"""Maximum attempts of an upload. The client itself also retries single requests."""
RETRY_DELAY_S: Final = 2.0
"""Delay before the second attempt. It doubles before the third."""


class S3Storage:
    """Store checkpoints below a prefix of a bucket."""

    def __init__(self, objects: BucketClient, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Set the bucket and prefix, without a request."""
        self._objects, self._sleep = objects, sleep

    def address(self, name: str = "") -> str:
        """Return the address of a checkpoint, or of the prefix if `name` is "". It need not exist."""
        return self._objects.address(name)

    def names(self) -> list[str]:
        """Return the names of the complete checkpoints, newest first. Raises BucketError."""
        return sorted((name for name, files in self._folders().items() if MANIFEST in files), reverse=True)

    def put(self, name: str, size: int, fill: Fill) -> None:
        """Upload a checkpoint, with retries.

        `size`: bytes of the arrays. `fill` writes them to a file, and returns the manifest. It is called again for each
        retry. Raises BucketError, and errors of `fill`.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._put(name, size, fill)
            except BucketError:
                if attempt == ATTEMPTS:
                    raise
                self._sleep(RETRY_DELAY_S * attempt)
            else:
                return

    def _put(self, name: str, size: int, fill: Fill) -> None:
        manifest = b""

        def write(file: IO[bytes]) -> None:
            nonlocal manifest
            manifest = fill(file)

        # Until the new manifest is written, an old one does not match the new arrays: the checkpoint is damaged.
        self._objects.put(f"{name}/{ARRAYS}", size, write)
        self._objects.put(f"{name}/{MANIFEST}", len(manifest), lambda file: _write(file, manifest))

    def manifest(self, name: str) -> bytes:
        """Fetch a checkpoint's manifest. Raises FileNotFoundError, BucketError."""
        with self._objects.get(f"{name}/{MANIFEST}") as file:
            return file.read()

    @contextlib.contextmanager
    def arrays(self, name: str) -> Iterator[IO[bytes]]:
        """Stream a checkpoint's arrays within a block. Raises FileNotFoundError, BucketError."""
        with self._objects.get(f"{name}/{ARRAYS}") as file:
            yield file

    def remove(self, name: str) -> None:
        """Remove a checkpoint's objects with one request, ignoring failures.

        If only the manifest was removed, `tidy` removes the rest.
        """
        with contextlib.suppress(BucketError):
            self._objects.delete([f"{name}/{file}" for file in (MANIFEST, ARRAYS)])

    def tidy(self) -> None:
        """Remove the files of checkpoints without a manifest, ignoring failures.

        Raises BucketError if the bucket cannot be listed.
        """
        left = [f"{name}/{file}" for name, files in self._folders().items() if MANIFEST not in files for file in files]
        with contextlib.suppress(BucketError):
            self._objects.delete(left)

    def set_writer(self, writer: bytes) -> None:
        """Record the process that writes to this storage. Raises BucketError."""
        self._objects.put(WRITER, len(writer), lambda file: _write(file, writer))

    def writer(self) -> bytes | None:
        """Fetch what the latest `set_writer` of any process wrote; None if there was none. Raises BucketError."""
        try:
            with self._objects.get(WRITER) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def _folders(self) -> dict[str, list[str]]:
        """Map each checkpoint to the names of its files."""
        folders: dict[str, list[str]] = {}
        for path in self._objects.paths():
            name, _, file = path.partition("/")
            if NAME.fullmatch(name) and file:
                folders.setdefault(name, []).append(file)
        return folders


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(content)


CheckpointStorage = DirectoryStorage | S3Storage
"""Storage of checkpoints by name. Both classes have the same methods.

If `put` fails, existing checkpoints stay unchanged. It passes errors of `fill` on. `manifest` and `arrays` raise
OSError for a missing checkpoint. `remove` ignores failures. Only the writer may call `tidy`, which removes the
remains of killed writers.
"""
