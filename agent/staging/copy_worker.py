"""A worker's side of `fab stage-data --to local`.

`python3 -m agent.staging.copy_worker ROOT NAME SHARED` writes JSON lines to standard output.

It copies the data set NAME from SHARED to ROOT, or with `--sharded` its shard, and verifies its part of the files in
SHARED. `--digest=HASH` is that of the manifest to copy; `--nodes=ADDRESS,...` are the nodes that share the work, in
order; in each `--round=N` a node has another part. It starts on all nodes at once, so it imports no more than it needs.
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

from agent.deadline import wait_until
from agent.staging.dataset import StagedDataset
from agent.staging.disk_copy import copy
from agent.staging.errors import DatasetError
from agent.staging.manifest import Entry, Manifest, ManifestError, shard
from agent.staging.progress import Emit

MANIFEST_TIMEOUT_S: Final = 60.0
"""How long NFS may cache the old state of a directory."""
POLL_S: Final = 0.2


def own_index(addresses: Sequence[str], mine: Iterable[str] | None = None) -> int:
    """Return this node's index in a list of addresses. Raises DatasetError where it is not in the list."""
    if mine is None:
        from agent.hardware.machine import own_addresses  # Needed only where the work is shared.

        mine = own_addresses()
    own = set(mine)
    for index, address in enumerate(addresses):
        if address in own:
            return index
    raise DatasetError("this node has joined since the work began: repeat the command")


def part_of(entries: Sequence[Entry], addresses: Sequence[str], round_number: int) -> Sequence[Entry]:
    """Return this node's part of the files; all of them where no addresses are given."""
    if not addresses:
        return entries
    return shard(entries, (own_index(addresses) + round_number) % len(addresses), len(addresses))


def wait_for_manifest(shared: StagedDataset, digest: str, timeout_s: float = MANIFEST_TIMEOUT_S) -> Manifest:
    """Return the manifest with this digest, once it is visible here: NFS may show an older one for a while.

    Raises DatasetError where it does not appear in time.
    """
    trouble = ""

    def visible() -> Manifest | None:
        nonlocal trouble
        try:
            listed = shared.listed()
        except DatasetError as error:
            trouble = str(error)
            return None
        trouble = f"{shared.directory} lists other data than are staged: another staging is under way there"
        return listed if listed.digest == digest else None

    manifest = wait_until(visible, timeout_s=timeout_s, poll_s=POLL_S)
    if manifest is None:
        raise DatasetError(trouble)
    return manifest


def run_and_report(carry_out: Callable[[Emit], None]) -> int:
    """Run one command; return 0 on success, 1 after one line with the error."""
    lock = threading.Lock()

    def emit(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    # The caller has gone: partial files are removed on exit.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        carry_out(emit)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (DatasetError, ManifestError, OSError) as error:
        kind = "refused" if isinstance(error, PermissionError) else getattr(error, "kind", "")
        emit({"error": str(error), "kind": kind})
        return 1
    return 0


def main(argv: Sequence[str]) -> int:
    """Run the command line; the status is that of `run_and_report`."""
    gc.disable()  # The process is short, and needs its objects to the end.
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
