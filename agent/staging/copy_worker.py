"""A worker's side of `fab stage-data --to local`.

`python3 -m agent.staging.copy_worker ROOT NAME SHARED` answers in JSON lines.

It copies the data set NAME from SHARED to ROOT, or with `--sharded` its shard, and reads its part of what lies in
SHARED. `--digest=HASH` is that of the manifest that is meant; `--nodes=ADDRESS,...` are those that share the work, in
order, and `--turn=N` moves the parts on from node to node. It starts on all nodes at once, so it imports no more than
it needs.
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
from agent.staging.dataset import DatasetError, StagedDataset
from agent.staging.disk_copy import copy
from agent.staging.manifest import Entry, Manifest, ManifestError, shard
from agent.staging.progress import Emit

MANIFEST_TIMEOUT_S: Final = 60.0
"""How long NFS may cache the old state of a directory."""
POLL_S: Final = 0.2


def own_index(addresses: Sequence[str], mine: Iterable[str] | None = None) -> int:
    """Return which of these nodes this one is, by its own addresses. Raises DatasetError where it is none."""
    if mine is None:
        from agent.hardware.interfaces import own_addresses  # Only a part has to know where it is.

        mine = own_addresses()
    own = set(mine)
    for index, address in enumerate(addresses):
        if address in own:
            return index
    raise DatasetError("this node has joined since the work began: repeat the command")


def part_of(entries: Sequence[Entry], addresses: Sequence[str], turn: int) -> Sequence[Entry]:
    """Return this node's part of the files; all where no nodes are named."""
    if not addresses:
        return entries
    return shard(entries, (own_index(addresses) + turn) % len(addresses), len(addresses))


def wait_for_manifest(shared: StagedDataset, digest: str, timeout_s: float = MANIFEST_TIMEOUT_S) -> Manifest:
    """Return the manifest with this digest, once it is visible here: NFS may show an older one for a while.

    Raises DatasetError where it does not appear in time.
    """
    trouble = ""

    def visible() -> Manifest | None:
        nonlocal trouble
        shared.refresh_directories()
        try:
            listed = shared.listed()
        except DatasetError as error:
            trouble = str(error)
            return None
        trouble = f"{shared.directory} lists other data than are staged: somebody else stages there too"
        return listed if listed.digest == digest else None

    manifest = wait_until(visible, timeout_s=timeout_s, poll_s=POLL_S)
    if manifest is None:
        raise DatasetError(trouble)
    return manifest


def run_and_report(carry_out: Callable[[Emit], None]) -> int:
    """Carry out one command; return 0 where all is well, 1 after one line that says what was wrong."""
    lock = threading.Lock()

    def emit(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    # Whoever asked has gone: what is half written is removed on the way out.
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
    gc.disable()  # Its objects are needed to its end, which is soon.
    words = [word for word in argv if not word.startswith("--")]
    flags = dict(word.partition("=")[::2] for word in argv if word.startswith("--"))
    root, name, shared_root = words
    addresses = flags["--nodes"].split(",") if flags.get("--nodes") else []
    shared, local = StagedDataset(root=Path(shared_root), name=name), StagedDataset(root=Path(root), name=name)

    def carry_out(emit: Emit) -> None:
        listed = wait_for_manifest(shared, flags["--digest"])
        part = part_of(listed.entries, addresses, int(flags.get("--turn", "0")))
        is_sharded = "--sharded" in flags
        wanted = Manifest.of(part_of(listed.entries, addresses, 0), listed.source) if is_sharded else listed
        copy(shared, local, wanted, part, emit)

    return run_and_report(carry_out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
