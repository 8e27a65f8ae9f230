"""Pack the small files of one upload into one file beside the data set, for the nodes that copy them.

Opening a file costs a round trip on a shared file system, so that thousands of small ones are read faster as one. The
pack has the format of the stream, lies in the partial directory and is removed with it. It is only a cache: where it is
missing or ends early, the files themselves are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from agent.files.atomic_write import no_follow
from agent.staging.dataset import StagedDataset
from agent.staging.manifest import Entry

LIMIT: Final = 64 << 10
"""Bytes of a file up to which opening it takes longer than reading it."""
BUFFER: Final = 1 << 20


def pack_path(dataset: StagedDataset) -> Path:
    """Return the path of the pack."""
    return dataset.partial / "pack"


class Packer:
    """Write the pack of an upload; where it cannot be written, there is none."""

    def __init__(self, dataset: StagedDataset) -> None:
        self._path = pack_path(dataset)
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Packer:
        with contextlib.suppress(OSError):
            self._file = open(self._path, "wb", buffering=BUFFER, opener=no_follow)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            try:
                self._file.close()
            except OSError:
                self._drop()

    def add(self, line: bytes, entry: Entry, data: bytes) -> None:
        """Add a file, with its line of the stream, if it is small."""
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
    """Yield those of these files that the pack has with the listed content."""
    try:
        with pack_path(dataset).open("rb", buffering=BUFFER) as file:
            while line := file.readline():
                head = json.loads(line)
                data = file.read(head["size"])
                entry = wanted.get(head["path"])
                if entry and hashlib.sha256(data).hexdigest() == entry.sha256:
                    yield entry, data
    except (OSError, ValueError, KeyError, TypeError):
        return
