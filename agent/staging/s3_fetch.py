"""Data from a bucket to a node's own disks, or a node's part of it to the shared file system.

What S3 calls the content of an object, its ETag, stands for it once it was read: an object whose size and ETag are
those of a file that is there with its hash is not fetched again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from agent.staging import s3_objects
from agent.staging.dataset import Shelf, ShelfError
from agent.staging.manifest import Entry, Manifest, ManifestError
from agent.staging.progress import Emit, Meter, account
from agent.staging.s3_objects import Prefix


def fetch(prefix: Prefix, shelf: Shelf, part: Callable[[Sequence[Entry]], Sequence[Entry]], emit: Emit) -> None:
    """Fetch this node's part of a bucket's objects to its own disk, but for those that are there already."""
    listed = s3_objects.listing(prefix)
    entries = [known(shelf).get((e.path, e.size, e.etag), e) for e in part(Manifest.of(listed).entries)]
    with shelf.locked():
        wanted = Manifest.of(entries, str(prefix))
        foreign = shelf.begin(wanted)
        came = _fetch_missing(prefix, shelf, wanted.entries, len(listed) == 1, emit)
        whole = Manifest.of(with_hashes(shelf, wanted), str(prefix))
        shelf.finish(whole)
        journals_removed(shelf)
    emit({"done": {**account(whole, came, foreign), "listing": Manifest.of(listed).digest}})


def fetch_shared(prefix: Prefix, shelf: Shelf, entries: Sequence[Entry], single: bool, emit: Emit) -> None:
    """Fetch this node's part of what is coming to the shared file system. The master finishes it."""
    came = _fetch_missing(prefix, shelf, entries, single, emit)
    emit({"done": {"files": len(entries), "came_bytes": came}})


def _fetch_missing(prefix: Prefix, shelf: Shelf, entries: Sequence[Entry], single: bool, emit: Emit) -> int:
    meter, wanted = Meter(emit, entries), []
    for entry, is_missing in shelf.missing(entries):
        if is_missing or not entry.sha256:
            wanted.append(entry)
        else:
            meter.add(entry)
    is_one = single and s3_objects.is_single(prefix, entries)
    with _journal(shelf).open("a", encoding="ascii") as journal:
        for entry in s3_objects.fetch(prefix, shelf, wanted, single=is_one, at=meter.on_the_way):
            meter.add(entry)
            journal.write(entry.to_line() + "\n")
            journal.flush()
    meter.end()
    return sum(entry.size for entry in wanted)


def _journal(shelf: Shelf) -> Path:
    """Return this node's own list of what it has fetched: what is not told yet when a fetch is interrupted."""
    return shelf.root / f".{shelf.name}.fetched-{os.uname().nodename}"


def _journals(shelf: Shelf) -> list[Path]:
    return sorted(shelf.root.glob(f".{shelf.name}.fetched-*"))


def journals_removed(shelf: Shelf) -> None:
    for file in _journals(shelf):
        file.unlink(missing_ok=True)


def known(shelf: Shelf) -> dict[tuple[str, int, str], Entry]:
    """Return the hashes of objects that were read before, by path, size and ETag."""
    found: list[Entry] = []
    with contextlib.suppress(OSError, ManifestError):
        found += Manifest.from_text(shelf.manifest_file.read_text(encoding="ascii")).entries
    for file in _journals(shelf):
        for line in file.read_text(encoding="ascii").split("\n"):
            with contextlib.suppress(ValueError):  # The last line may have been cut off.
                found.append(Entry.from_document(json.loads(line)))
    return {(entry.path, entry.size, entry.etag): entry for entry in found if entry.sha256 and entry.etag}


def with_hashes(shelf: Shelf, manifest: Manifest) -> Iterator[Entry]:
    seen = known(shelf)
    for entry in manifest.entries:
        found = entry if entry.sha256 else seen.get((entry.path, entry.size, entry.etag))
        if found is None:
            raise ShelfError(f"{entry.path!r} was not fetched by any node: repeat the command")
        yield found
