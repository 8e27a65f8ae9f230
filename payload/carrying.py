"""Data between the shared file system and a node's own disks, every byte of it read and compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from payload.manifest import Entry, Manifest, ManifestError, is_as_listed
from payload.meter import Emit, Meter, account, name_paths
from payload.shelf import READERS, DamagedError, Shelf


def check(shelf: Shelf, entries: Sequence[Entry], emit: Emit) -> None:
    """Read what is there of these files, and tell which are missing or have other bytes."""
    before = _hashes_before(shelf)
    meter = Meter(emit, entries)
    missing, damaged = [], []
    for entry, is_missing in shelf.missing(entries):
        meter.add(entry)
        if is_missing:
            missing.append(entry.path)
            if before.get(entry.path) == entry.sha256:
                damaged.append(entry.path)
    meter.end()
    name_paths(emit, "missing", missing)
    name_paths(emit, "damaged", damaged)
    emit({"done": {"files": len(entries)}})


def copy(shared: Shelf, local: Shelf, entries: Sequence[Entry], source: str, emit: Emit) -> None:
    """Bring these files from the shared file system to this node; read each one back, and those that were there."""
    with local.locked():
        before = _hashes_before(local)
        wanted = Manifest.of(entries, source)
        foreign = local.begin(wanted)
        meter, damaged, copied = Meter(emit, entries), [], 0

        def bring(entry: Entry) -> tuple[Entry, bool]:
            if is_as_listed(local.path(entry), entry):
                return entry, False
            try:
                with shared.path(entry).open("rb") as file:
                    local.put(entry, file)
            except FileNotFoundError:
                raise DamagedError(f"{shared.path(entry)} is missing") from None
            except DamagedError as error:
                raise DamagedError(f"{shared.directory}: {error}") from None
            if not is_as_listed(local.path(entry), entry):
                raise DamagedError(f"{local.path(entry)} reads back other bytes than were written: a bad disk?")
            return entry, True

        for entry, came in _each(bring, wanted.entries):
            meter.add(entry)
            copied += entry.size if came else 0
            if came and before.get(entry.path) == entry.sha256:
                damaged.append(entry.path)
        meter.end()
        local.finish(wanted)
    name_paths(emit, "damaged", damaged)
    emit({"done": account(wanted, copied, foreign)})


def _each(work: Callable[[Entry], tuple[Entry, bool]], entries: Sequence[Entry]) -> Iterator[tuple[Entry, bool]]:
    """Do work on several files at once; where one fails, what has not begun is left."""
    with ThreadPoolExecutor(max_workers=READERS) as pool:
        try:
            yield from pool.map(work, entries)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _hashes_before(shelf: Shelf) -> dict[str, str]:
    """Return the hashes of what lay there whole before: a file that has another one now was damaged."""
    with contextlib.suppress(OSError, ManifestError):
        text = shelf.manifest_file.read_text(encoding="ascii")
        return {entry.path: entry.sha256 for entry in Manifest.from_text(text).entries}
    return {}
