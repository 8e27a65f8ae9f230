"""The files of a data set as they come over the one connection: for each a line of JSON, then its bytes.

The last line says that it was the last. Small files are written by several threads at once, for a shared file system
takes its time for each; a large one is written as it comes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

from agent.parallel import HANDS
from agent.staging.dataset import DamagedError, Shelf, ShelfError
from agent.staging.manifest import BLOCK, Entry
from agent.staging.pack import Packer

SMALL: Final = 4 << 20
"""Bytes of a file up to which it is held in memory on its way."""
BATCH_BYTES: Final = 1 << 20
BATCH_FILES: Final = 32
"""Small files that one thread writes in one go."""
END: Final = b"{}\n"
SEND_BLOCK: Final = 1 << 17
"""Bytes that are sent at once: many small files make few packets."""


class BrokenOffError(ShelfError):
    """Report that the stream ended before its last line: whoever sent it has gone."""

    kind = "broken off"


class ChangedError(ShelfError):
    """Report a file that changed on the laptop while it was sent."""


def framed(root: Path, entries: Iterable[Entry], opened: Callable[[str], IO[bytes]] = io.FileIO) -> Iterator[bytes]:
    """Yield the stream of these files. Raises ChangedError for one that has another size by now, or has gone."""
    for entry in entries:
        yield entry.to_line().encode("ascii") + b"\n"
        left = entry.size
        try:
            with opened(f"{root}/{entry.path}") as file:
                while left and (block := file.read(min(BLOCK, left))):
                    left -= len(block)
                    yield block
                if left or file.read(1):
                    raise ChangedError(f"{root / entry.path}: has another size than when it was read first")
        except OSError as error:
            raise ChangedError(f"{root / entry.path}: {error.strerror}") from None
    yield END


def coalesced(blocks: Iterable[bytes], least: int) -> Iterator[bytes]:
    """Yield the same bytes in blocks of at least so many, but for the last one."""
    waiting: list[bytes] = []
    size = 0
    try:
        for block in blocks:
            waiting.append(block)
            size += len(block)
            if size >= least:
                yield b"".join(waiting)
                waiting, size = [], 0
    except ChangedError:
        yield b"".join(waiting)  # The files before that one are whole.
        raise
    if waiting:
        yield b"".join(waiting)


def receive(shelf: Shelf, stream: IO[bytes], stored: Callable[[Entry], None], pack: Packer | None = None) -> None:
    """Put the files of a stream on a shelf; `stored` is told of each. What has come whole stays, whatever follows.

    Small ones go into the `pack` too. Raises BrokenOffError, DamagedError for a file of other bytes than listed,
    FullError.
    """
    waiting: list[tuple[list[tuple[Entry, bytes]], Future[None]]] = []
    batch: list[tuple[Entry, bytes]] = []
    held = 0

    def store(files: list[tuple[Entry, bytes]]) -> None:
        for entry, data in files:
            shelf.put_bytes(entry, data)

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

    with ThreadPoolExecutor(max_workers=HANDS) as pool:
        try:
            while (line := stream.readline()) != END:
                if not line.endswith(b"\n"):
                    raise BrokenOffError("the connection ended before the last file")
                entry = Entry.from_document(json.loads(line))
                if entry.size > SMALL:
                    try:
                        shelf.put(entry, stream)
                    except DamagedError:
                        if not stream.peek(1):  # type: ignore[attr-defined]  # it is a buffered reader
                            raise BrokenOffError(f"the connection ended within {entry.path!r}") from None
                        raise
                    stored(entry)
                    continue
                data = stream.read(entry.size)
                if len(data) < entry.size:
                    raise BrokenOffError(f"the connection ended within {entry.path!r}")
                if pack:
                    pack.add(line, entry, data)
                batch.append((entry, data))
                held += entry.size
                if held >= BATCH_BYTES or len(batch) >= BATCH_FILES:
                    submit()
                    settle(2 * HANDS)
        finally:
            # What has arrived whole is kept, also where the stream broke off.
            submit()
            settle(0)
