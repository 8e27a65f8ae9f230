"""Time how a node writes to and reads from the shared file system and its local disk."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from agent.errors import ReportedError
from agent.files.atomic_write import reports_full_disk
from payload.settings.bench import LOCAL, READ, SHARED, Cell

BLOCK: Final = 1 << 20
"""Bytes in each call: the transfer size of the shared file system's mount (`wsize` and `rsize`)."""


class StorageBench:
    """Time writing and reading one file in each location. Call `remove` at the end."""

    def __init__(self, run_dir: Path, home: Path, rank: int) -> None:
        """`home`: a directory on the local disk. The files' names begin with a dot, so copies of the run omit them."""
        self._files: Mapping[str, Path] = {SHARED: run_dir / f".bench-{rank}", LOCAL: home / f".bench-{rank}"}
        self._block = os.urandom(BLOCK)  # random, so that it cannot be compressed

    def seconds(self, cell: Cell) -> float:
        """Write or read the cell's file; return the time in seconds.

        Writing replaces the file, and the time includes the sync to the storage. Before reading, a file that is missing
        or has another size is written without timing, and the file is dropped from the page cache. After an error, both
        files are removed and ReportedError is raised.
        """
        file = self._files[cell.place]
        try:
            if cell.kind == READ:
                if not file.exists() or file.stat().st_size != cell.message_bytes:
                    self._write(file, cell.message_bytes)
                _forget(file)
                return _timed(lambda: _read(file))
            file.unlink(missing_ok=True)
            return _timed(lambda: self._write(file, cell.message_bytes))
        except OSError as error:
            self.remove()
            where, less = f"{cell}: {file}: {error.strerror or error}", "use a smaller --storage-mib"
            is_full = reports_full_disk(where)
            advice = f"free space there, or {less}" if is_full else "check the directory, or set --storage-mib 0"
            raise ReportedError(f"{where}; {advice}") from None

    def remove(self) -> None:
        """Remove both files. Failures are ignored."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)

    def _write(self, file: Path, size: int) -> None:
        with file.open("wb", buffering=0) as opened:
            for _ in range(size // BLOCK):
                opened.write(self._block)
            os.fsync(opened.fileno())


def _read(file: Path) -> None:
    with file.open("rb", buffering=0) as opened:
        while opened.read(BLOCK):
            pass


def _forget(file: Path) -> None:
    """Drop a file from this node's page cache, so that reading it uses the storage."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
