"""The small files of one upload in one file beside the data set, for the nodes that copy them.

A shared file system takes its time for each file that is opened; thousands of small ones are read sooner as one. It is
the stream as it came, lies among the files on their way, and goes with them. Without it, or where it ends early, the
files themselves are read: it holds nothing that is not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from agent.staging.dataset import StagedDataset
from agent.staging.manifest import Entry

LIMIT: Final = 64 << 10
"""Bytes of a file up to which opening it costs more than reading it."""
BUFFER: Final = 1 << 20


def pack_path(dataset: StagedDataset) -> Path:
    """Return where it lies."""
    return dataset.partial / "pack"


class Packer:
    """Write the pack of an upload; a disk that has no room for it does without."""

    def __init__(self, dataset: StagedDataset) -> None:
        self._path = pack_path(dataset)
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Packer:
        with contextlib.suppress(OSError):
            self._file = self._path.open("wb", buffering=BUFFER)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            try:
                self._file.close()
            except OSError:
                self._drop()

    def add(self, line: bytes, entry: Entry, data: bytes) -> None:
        """Take a file, with its line of the stream, if it is small."""
        if self._file and entry.size <= LIMIT:
            try:
                self._file.write(line)
                self._file.write(data)
            except OSError:
                self._drop()

    def _drop(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def read(dataset: StagedDataset, wanted: Mapping[str, Entry]) -> Iterator[tuple[Entry, bytes]]:
    """Yield what of these files the pack holds with the bytes that are listed."""
    try:
        with pack_path(dataset).open("rb", buffering=BUFFER) as file:
            while line := file.readline():
                told = json.loads(line)
                data = file.read(told["size"])
                entry = wanted.get(told["path"])
                if entry and hashlib.sha256(data).hexdigest() == entry.sha256:
                    yield entry, data
    except (OSError, ValueError, KeyError, TypeError):
        return
