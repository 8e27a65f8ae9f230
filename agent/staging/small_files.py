"""Pack the small files of one upload into a single file, for the nodes that copy them.

On a shared file system, opening a file costs a round trip, so thousands of small files are read faster from one file.
The pack has the format of the stream. It is in the partial directory and is removed with it. It is only a cache: if it
is missing or truncated, the files themselves are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from agent.files.atomic_write import no_follow
from agent.staging.manifest import Entry
from agent.staging.staged_dataset import StagedDataset

LIMIT: Final = 64 << 10
"""Maximum size in bytes of a packed file. For smaller files, opening takes longer than reading."""
BUFFER: Final = 1 << 20


def pack_path(dataset: StagedDataset) -> Path:
    """Return the path of the data set's pack."""
    return dataset.partial / "pack"


class Packer:
    """Write the pack of an upload. If writing fails, the pack is removed and the upload continues without it."""

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
        """Add a file to the pack if it is small. `line` is the file's header line in the stream.

        After an error, the pack is removed, and files are no longer added.
        """
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
    """Yield wanted files from the pack, as (entry, content), if the content has the entry's hash.

    `wanted` has the entries by path. Nothing more is yielded if the pack is missing or damaged.
    """
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
