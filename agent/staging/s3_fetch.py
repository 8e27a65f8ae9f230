"""Fetch a data set from a bucket to a node's own disks, or a node's part of it to the shared file system.

An object is not fetched again where a file is there whose entry has its size and ETag, and whose hash matches.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from agent.staging import s3_objects
from agent.staging.dataset import StagedDataset
from agent.staging.errors import DatasetError
from agent.staging.manifest import Entry, Manifest
from agent.staging.progress import Emit, ProgressMeter, summary
from agent.staging.s3_objects import Prefix


def fetch(
    prefix: Prefix, dataset: StagedDataset, part: Callable[[Sequence[Entry]], Sequence[Entry]], emit: Emit
) -> None:
    """Fetch this node's part of a bucket's objects to its own disk, except those that are there already."""
    listed = s3_objects.listing(prefix)
    entries = [known_hashes(dataset).get((e.path, e.size, e.etag), e) for e in part(Manifest.of(listed).entries)]
    with dataset.locked():
        wanted = Manifest.of(entries, str(prefix))
        foreign = dataset.begin(wanted)
        came = _fetch_missing(prefix, dataset, wanted.entries, len(listed) == 1, emit)
        whole = Manifest.of(with_hashes(dataset, wanted), str(prefix))
        dataset.finish(whole)
        remove_journals(dataset)
    emit({"done": {**summary(whole, came, foreign), "listing": Manifest.of(listed).digest}})


def fetch_shared(prefix: Prefix, dataset: StagedDataset, entries: Sequence[Entry], single: bool, emit: Emit) -> None:
    """Fetch this node's part of a pending data set to the shared file system. The master finishes the data set."""
    came = _fetch_missing(prefix, dataset, entries, single, emit)
    emit({"done": {"files": len(entries), "came_bytes": came}})


def _fetch_missing(prefix: Prefix, dataset: StagedDataset, entries: Sequence[Entry], single: bool, emit: Emit) -> int:
    progress, wanted = ProgressMeter(emit, entries), []
    for entry, is_missing in dataset.verify(entries):
        if is_missing or not entry.sha256:
            wanted.append(entry)
        else:
            progress.add(entry)
    is_one = single and s3_objects.is_single(prefix, entries)
    with _journal(dataset).open("a", encoding="ascii") as journal:
        for entry in s3_objects.fetch(prefix, dataset, wanted, single=is_one, at=progress.in_flight):
            progress.add(entry)
            journal.write(entry.to_line() + "\n")
            journal.flush()
    progress.end()
    return sum(entry.size for entry in wanted)


def _journal(dataset: StagedDataset) -> Path:
    """Return this node's journal of fetched files, from which an interrupted fetch is continued."""
    return dataset.root / f".{dataset.name}.fetched-{os.uname().nodename}"


def _journals(dataset: StagedDataset) -> list[Path]:
    return sorted(dataset.root.glob(f".{dataset.name}.fetched-*"))


def remove_journals(dataset: StagedDataset) -> None:
    for file in _journals(dataset):
        file.unlink(missing_ok=True)


def known_hashes(dataset: StagedDataset) -> dict[tuple[str, int, str], Entry]:
    """Return the hashes of objects that were read before, by path, size and ETag."""
    found = list(dataset.last_entries())
    for file in _journals(dataset):
        for line in file.read_text(encoding="ascii").split("\n"):
            with contextlib.suppress(ValueError):  # The last line may be cut off.
                found.append(Entry.from_document(json.loads(line)))
    return {(entry.path, entry.size, entry.etag): entry for entry in found if entry.sha256 and entry.etag}


def with_hashes(dataset: StagedDataset, manifest: Manifest) -> Iterator[Entry]:
    seen = known_hashes(dataset)
    for entry in manifest.entries:
        found = entry if entry.sha256 else seen.get((entry.path, entry.size, entry.etag))
        if found is None:
            raise DatasetError(f"{entry.path!r} was not fetched by any node: repeat the command")
        yield found
