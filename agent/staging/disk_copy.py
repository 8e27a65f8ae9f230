"""Copy a data set from the shared file system to a node's own disks, and verify every byte of it."""

from __future__ import annotations

from collections.abc import Sequence

from agent.parallel import map_unordered
from agent.staging import pack
from agent.staging.dataset import StagedDataset
from agent.staging.errors import CorruptingDiskError, DamagedFileError
from agent.staging.manifest import Entry, Manifest, is_as_listed
from agent.staging.progress import Emit, ProgressMeter, emit_paths, summary


def check(dataset: StagedDataset, entries: Sequence[Entry], emit: Emit) -> None:
    """Read these files, and report those that are missing or have other content."""
    progress, missing = ProgressMeter(emit, entries), []
    for entry, is_missing in dataset.verify(entries):
        progress.add(entry)
        if is_missing:
            missing.append(entry)
    progress.end()
    _report_missing(dataset, missing, emit)
    emit({"done": {"files": len(entries)}})


def copy(shared: StagedDataset, local: StagedDataset, wanted: Manifest, part: Sequence[Entry], emit: Emit) -> None:
    """Copy these files from the shared file system to this node and verify them; verify `part` of the originals too.

    Originals that are missing or have other content are reported, and this node's copy then stays incomplete.
    """
    with local.locked():
        before, is_new = _hashes_before(local), not local.directory.exists()
        foreign = local.begin(wanted)
        entries, to_check = wanted.by_path(), {entry.path for entry in part}
        progress, came, lacking = ProgressMeter(emit, wanted.entries), set[str](), list[Entry]()
        there = shared.there(wanted.entries)

        def is_here(entry: Entry) -> bool:
            return not is_new and is_as_listed(local.path_text(entry), entry)

        def is_intact(entry: Entry) -> bool:
            return entry.path in there and is_as_listed(shared.path_text(entry), entry)

        def copy_one(entry: Entry) -> tuple[Entry, bool, bool]:
            """Return the entry, whether it was copied now, and whether the shared file system lacks it."""
            if entry.path in came or is_here(entry):
                return entry, False, entry.path in to_check and not is_intact(entry)
            if entry.path not in there:
                return entry, False, True
            try:
                with open(shared.path_text(entry), "rb", buffering=0) as file:  # noqa: PTH123  # thousands of them
                    local.put(entry, file)
            except CorruptingDiskError:
                raise
            except (FileNotFoundError, DamagedFileError):
                return entry, False, True
            return entry, True, False

        for entry, data in pack.read(shared, entries):
            if not is_here(entry):
                local.put_bytes(entry, data, compared=True)
                came.add(entry.path)
                if entry.path not in to_check:
                    progress.add(entry)
        rest = [entry for entry in wanted.entries if entry.path not in came or entry.path in to_check]
        for entry, is_copied, is_lacking in map_unordered(copy_one, rest):
            progress.add(entry)
            if is_copied:
                came.add(entry.path)
            if is_lacking:
                lacking.append(entry)
        elsewhere = [entry for entry in part if entry.path not in entries]
        lacking += [entry for entry, is_missing in shared.verify(elsewhere) if is_missing]
        progress.end()
        if not lacking:
            local.commit()
    emit_paths(emit, "damaged", [path for path in sorted(came) if before.get(path) == entries[path].sha256])
    _report_missing(shared, lacking, emit)
    emit({"done": summary(wanted, sum(entries[path].size for path in came), foreign)})


def _report_missing(shared: StagedDataset, missing: Sequence[Entry], emit: Emit) -> None:
    """Report the files that the shared file system lacks, and those of them that were complete there before."""
    if missing:
        before = _hashes_before(shared)
        emit_paths(emit, "missing", sorted(entry.path for entry in missing))
        emit_paths(emit, "spoiled", sorted(e.path for e in missing if before.get(e.path) == e.sha256))


def _hashes_before(dataset: StagedDataset) -> dict[str, str]:
    """Return the hashes in the last complete manifest: a file that has another one now was damaged."""
    return {entry.path: entry.sha256 for entry in dataset.last_entries()}
