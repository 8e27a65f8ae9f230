"""Storage of checkpoints: each has a name, a file of arrays and a manifest, and is written atomically.

Names sort by age. A storage does not interpret the files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, Protocol

from agent.files.atomic_write import replace_file, storing, sync_directory

ARRAYS: Final = "arrays.safetensors"
MANIFEST: Final = "manifest.json"
NAME: Final = re.compile(r"step-\d{8,}")

Fill = Callable[[IO[bytes]], bytes]
"""Writes the arrays and returns the manifest."""


class CheckpointStorage(Protocol):
    """Checkpoints by name."""

    def address(self, name: str = "") -> str:
        """Return the address of a checkpoint, or of all of them, for messages."""

    def names(self) -> list[str]:
        """List the complete checkpoints, the newest first."""

    def put(self, name: str, size: int, fill: Fill) -> None:
        """Write a checkpoint whose arrays take `size` bytes. Raises ReportedError; existing checkpoints stay untouched.

        Errors of `fill` pass through.
        """

    def manifest(self, name: str) -> bytes:
        """Return a checkpoint's manifest. Raises OSError where it is missing, ReportedError where the storage fails."""

    def arrays(self, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """Open a checkpoint's arrays. Raises OSError where it is missing, ReportedError where the storage fails."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint; failures are ignored."""

    def tidy(self) -> None:
        """Remove what killed writers left. Only for the writer."""


class DirectoryStorage:
    """Checkpoints in a directory, on a disk or a shared file system: one directory for each.

    While one is written or removed, its directory has a name that begins with a dot.
    """

    def __init__(self, path: Path) -> None:
        """Set the directory, which need not exist."""
        self.path = path

    def address(self, name: str = "") -> str:
        """Return its path."""
        return str(self.path / name)

    def names(self) -> list[str]:
        """List the complete checkpoints, the newest first."""
        names = [path.name for path in self.path.glob("step-*") if NAME.fullmatch(path.name)]
        return sorted(names, reverse=True)

    def put(self, name: str, size: int, fill: Fill) -> None:
        """Write a checkpoint beside the others, then give it its name. Raises StorageError."""
        path, partial = self.path / name, self.path / f".partial-{name}"
        with storing(path):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                with (partial / ARRAYS).open("wb") as file:
                    manifest = fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                replace_file(partial / MANIFEST, manifest)
                if path.exists():  # the same step again, after a resume from an earlier one: this one was damaged
                    self.remove(name)
                partial.rename(path)
                sync_directory(self.path)
            finally:
                shutil.rmtree(partial, ignore_errors=True)

    def manifest(self, name: str) -> bytes:
        """Read a manifest. Raises OSError."""
        return (self.path / name / MANIFEST).read_bytes()

    @contextlib.contextmanager
    def arrays(self, name: str) -> Iterator[IO[bytes]]:
        """Open the arrays. Raises OSError."""
        with (self.path / name / ARRAYS).open("rb") as file:
            yield file

    def remove(self, name: str) -> None:
        """Rename a checkpoint before its files are removed, so that it is never read half removed."""
        gone = self.path / f".removed-{name}"
        shutil.rmtree(gone, ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.path / name).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def tidy(self) -> None:
        """Remove checkpoints that are half written or half removed."""
        for kind in ("partial", "removed"):
            for path in self.path.glob(f".{kind}-step-*"):
                shutil.rmtree(path, ignore_errors=True)
