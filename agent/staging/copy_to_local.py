"""Copy a data set to a worker's local disk: the worker's side of `fab stage-data --to local`.

`python3 -m agent.staging.copy_to_local ROOT NAME SHARED` writes JSON lines to standard output.

It copies the data set NAME from SHARED to ROOT, or only its shard with `--sharded`, and verifies its part of the files
in SHARED. `--digest=HASH` is the digest of the manifest to copy. `--nodes=ADDRESS,...` lists in order the nodes that
share the work. In each `--round=N` a node has another part. The program starts on all nodes at the same time, so it
imports as little as possible.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import describe
from agent.polling import wait_until
from agent.staging import small_files
from agent.staging.errors import (
    BusyDatasetError,
    CorruptingDiskError,
    DamagedFileError,
    DatasetError,
    IncompleteDataError,
)
from agent.staging.manifest import Entry, Manifest, ManifestError, is_as_listed, shard
from agent.staging.progress import Emit, ProgressMeter, emit_paths, summary
from agent.staging.staged_dataset import StagedDataset
from agent.staging.thread_pool import map_unordered


def check(dataset: StagedDataset, entries: Sequence[Entry], emit: Emit) -> None:
    """Read these files of a data set. Emit the progress, and at the end the number of files.

    Before that number, emit the paths of files that are missing or have other content as `missing`, and those of them
    that were complete before as `spoiled`. Raises OSError for a file that cannot be read.
    """
    progress, missing = ProgressMeter(emit, entries), []
    for entry, is_missing in dataset.verify(entries):
        progress.add(entry)
        if is_missing:
            missing.append(entry)
    progress.end()
    _report_missing(dataset, missing, emit)
    emit({"done": {"files": len(entries)}})


def copy(shared: StagedDataset, local: StagedDataset, wanted: Manifest, part: Sequence[Entry], emit: Emit) -> None:
    """Copy the files in `wanted` from the shared data set to the local one, and verify them.

    Also verify the files in `part` in the shared data set. Intact local files are not copied again. Emits the progress,
    a summary, and three lists of paths: `damaged` are local files that were complete before and had to be copied again,
    `missing` and `spoiled` are shared files (`_report_missing`). If a shared file is missing or has other content, the
    local copy stays incomplete. Raises DatasetError.
    """
    with local.locked():
        before, is_new = _hashes_before(local), not local.directory.exists()
        foreign = local.begin(wanted)
        entries, to_check = wanted.by_path(), {entry.path for entry in part}
        progress, came, lacking = ProgressMeter(emit, wanted.entries), set[str](), list[Entry]()
        there = shared.existing_paths(wanted.entries)

        def is_here(entry: Entry) -> bool:
            return not is_new and is_as_listed(local.path_text(entry), entry)

        def is_intact(entry: Entry) -> bool:
            return entry.path in there and is_as_listed(shared.path_text(entry), entry)

        def copy_one(entry: Entry) -> tuple[Entry, bool, bool]:
            """Return the entry, whether it was copied now, and whether its shared file is missing or damaged."""
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

        for entry, data in small_files.read(shared, entries):
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
    """Emit the paths of files that the shared file system lacks, as `missing`.

    Those that were complete there before are also emitted as `spoiled`.
    """
    if missing:
        before = _hashes_before(shared)
        emit_paths(emit, "missing", sorted(entry.path for entry in missing))
        emit_paths(emit, "spoiled", sorted(e.path for e in missing if before.get(e.path) == e.sha256))


def _hashes_before(dataset: StagedDataset) -> dict[str, str]:
    """Return hashes by path from the last complete manifest. If a file's hash differs now, the file was damaged."""
    return {entry.path: entry.sha256 for entry in dataset.last_entries()}


MANIFEST_TIMEOUT_S: Final = 60.0
"""How long NFS may cache the old state of a directory."""
POLL_S: Final = 0.2


def own_index(addresses: Sequence[str], mine: Iterable[str] | None = None) -> int:
    """Return this node's index in a list of addresses. Raises IncompleteDataError if none of them is this node's.

    `mine` are this node's addresses, by default those of its interfaces.
    """
    if mine is None:
        from agent.hardware.machine import own_addresses  # Only needed if nodes share the work.

        mine = own_addresses()
    own = set(mine)
    for index, address in enumerate(addresses):
        if address in own:
            return index
    raise IncompleteDataError("this node joined the cluster after the command had started, and has no part of the data")


def part_of(entries: Sequence[Entry], addresses: Sequence[str], round_number: int) -> Sequence[Entry]:
    """Return this node's part of the files, or all files if no addresses are given.

    `addresses` are those of the nodes that share the work. Each part has about the same number of bytes. In each round,
    a node has another part. Raises IncompleteDataError if this node is not among them.
    """
    if not addresses:
        return entries
    return shard(entries, (own_index(addresses) + round_number) % len(addresses), len(addresses))


def wait_for_manifest(shared: StagedDataset, digest: str, timeout_s: float = MANIFEST_TIMEOUT_S) -> Manifest:
    """Return the pending or complete manifest of `shared` with this digest, as soon as it is visible here.

    NFS may show an older one for a while. If it does not appear within `timeout_s`, this raises BusyDatasetError for
    another data set's manifest, and DatasetError without a manifest. Raises ManifestError if it is malformed.
    """
    trouble = DatasetError()

    def visible() -> Manifest | None:
        nonlocal trouble
        try:
            listed = shared.listed()
        except DatasetError as error:
            trouble = error
            return None
        trouble = BusyDatasetError(
            f"the manifest of {shared.directory} is of other data, because another `fab stage-data` has started"
        )
        return listed if listed.digest == digest else None

    manifest = wait_until(visible, timeout_s=timeout_s, poll_s=POLL_S)
    if manifest is None:
        raise trouble
    return manifest


def run_and_report(carry_out: Callable[[Emit], None]) -> int:
    """Call `carry_out` with a function that prints messages as lines of JSON.

    Returns 0 on success, or 1 after printing an error as such a line, with its `kind`. Also returns 1, without a line,
    if the reader of the output has gone away. Exits with status 143 on SIGTERM.
    """
    lock = threading.Lock()

    def emit(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    # If the caller has gone away, exit normally so that partial files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        carry_out(emit)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (DatasetError, ManifestError, OSError) as error:
        kind = "refused" if isinstance(error, PermissionError) else getattr(error, "kind", "")
        emit({"error": describe(error), "kind": kind})
        return 1
    return 0


def main(argv: Sequence[str]) -> int:
    """Copy a data set from the shared file system to this node, with the options in `argv`; return the exit status.

    The arguments are this node's root, the data set's name and the shared root.
    """
    gc.disable()  # The process is short-lived and uses its objects until the end.
    words = [word for word in argv if not word.startswith("--")]
    flags = dict(word.partition("=")[::2] for word in argv if word.startswith("--"))
    root, name, shared_root = words
    addresses = flags["--nodes"].split(",") if flags.get("--nodes") else []
    shared, local = StagedDataset(root=Path(shared_root), name=name), StagedDataset(root=Path(root), name=name)

    def carry_out(emit: Emit) -> None:
        listed = wait_for_manifest(shared, flags["--digest"])
        part = part_of(listed.entries, addresses, int(flags.get("--round", "0")))
        is_sharded = "--sharded" in flags
        wanted = Manifest.of(part_of(listed.entries, addresses, 0), listed.source) if is_sharded else listed
        copy(shared, local, wanted, part, emit)

    return run_and_report(carry_out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
