"""Stream a data set's files over one connection: for each file a line of JSON, then its bytes; at the end, END.

Several threads write small files concurrently, because each costs a round trip on a shared file system. A large file is
written while it arrives. The format is our own because nodes have only the standard library, and its tarfile neither
stores a hash per file nor resumes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

from agent.staging.errors import DamagedFileError, DatasetError, IncompleteDataError
from agent.staging.manifest import BLOCK, Entry
from agent.staging.small_files import Packer
from agent.staging.staged_dataset import StagedDataset
from agent.staging.thread_pool import WORKERS

SMALL: Final = 4 << 20
"""Maximum size in bytes of a file that is buffered in memory."""
BATCH_BYTES: Final = 1 << 20
BATCH_FILES: Final = 32
"""Maximum number of small files that one thread writes in one batch."""
END: Final = b"{}\n"
SEND_BLOCK: Final = 1 << 17
"""Bytes per send, so that many small files need few packets."""


class TruncatedStreamError(IncompleteDataError):
    """Report a stream that ended before its last line, because the sender has gone away."""


class SourceChangedError(DatasetError):
    """Report a file that changed or became unreadable on the laptop while it was being sent."""


def framed(root: Path, entries: Iterable[Entry], opened: Callable[[str], IO[bytes]] = io.FileIO) -> Iterator[bytes]:
    """Yield the stream of these files: for each file its entry as a line, then its content; END at the end.

    `opened` opens a path for reading. Raises SourceChangedError for a file that cannot be read or has another size.
    """
    for entry in entries:
        yield entry.to_line().encode() + b"\n"
        left = entry.size
        try:
            with opened(f"{root}/{entry.path}") as file:
                while left and (block := file.read(min(BLOCK, left))):
                    left -= len(block)
                    yield block
                if left or file.read(1):
                    raise SourceChangedError(f"{root / entry.path}: size changed since the upload started")
        except OSError as error:
            raise SourceChangedError(f"{root / entry.path}: can no longer be read: {error.strerror}") from None
    yield END


def coalesced(blocks: Iterable[bytes], least: int) -> Iterator[bytes]:
    """Yield the same bytes in blocks of at least `least` bytes, except the last block.

    All bytes before a SourceChangedError are yielded before it is raised.
    """
    waiting: list[bytes] = []
    size = 0
    try:
        for block in blocks:
            waiting.append(block)
            size += len(block)
            if size >= least:
                yield b"".join(waiting)
                waiting, size = [], 0
    except SourceChangedError:
        yield b"".join(waiting)  # The files before the changed one are complete.
        raise
    if waiting:
        yield b"".join(waiting)


def receive(
    dataset: StagedDataset, stream: IO[bytes], stored: Callable[[Entry], None], pack: Packer | None = None
) -> None:
    """Write the files of a stream into a data set, and call `stored` for each. Files already received stay on errors.

    Small files are also added to `pack`. Raises TruncatedStreamError, DiskFullError, or DamagedFileError for a file
    that differs from its entry.
    """
    waiting: list[tuple[list[tuple[Entry, bytes]], Future[None]]] = []
    batch: list[tuple[Entry, bytes]] = []
    held = 0

    def store(files: list[tuple[Entry, bytes]]) -> None:
        for entry, data in files:
            dataset.put_bytes(entry, data)

    def submit() -> None:
        nonlocal batch, held
        if batch:
            waiting.append((batch, pool.submit(store, batch)))
            batch, held = [], 0

    def settle(most: int) -> None:
        while len(waiting) > most:
            files, future = waiting.pop(0)
            future.result()
            for entry, _ in files:
                stored(entry)

    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        try:
            while (line := stream.readline()) != END:
                if not line.endswith(b"\n"):
                    raise TruncatedStreamError("the connection from the laptop was closed before the last file")
                entry = Entry.from_document(json.loads(line))
                if entry.size > SMALL:
                    try:
                        dataset.put(entry, stream)
                    except DamagedFileError:
                        if not stream.peek(1):  # type: ignore[attr-defined]  # it is a buffered reader
                            raise TruncatedStreamError(
                                f"the connection from the laptop was closed while {entry.path!r} was received"
                            ) from None
                        raise
                    stored(entry)
                    continue
                data = stream.read(entry.size)
                if len(data) < entry.size:
                    raise TruncatedStreamError(
                        f"the connection from the laptop was closed while {entry.path!r} was received"
                    )
                if pack:
                    pack.add(line, entry, data)
                batch.append((entry, data))
                held += entry.size
                if held >= BATCH_BYTES or len(batch) >= BATCH_FILES:
                    submit()
                    settle(2 * WORKERS)
        finally:
            # Keep the complete files, even if the stream broke off.
            submit()
            settle(0)
