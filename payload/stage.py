"""The nodes' side of `fab stage-data`: `python3 -m payload.stage COMMAND ...`, JSON lines on standard output.

On the master: `begin ROOT NAME`, the manifest on standard input; `list ADDRESS REGION`; `receive ROOT NAME`, the files
on standard input; `finish ROOT NAME`. On the nodes, each of which takes its part: `check ROOT NAME`; `copy ROOT NAME
FROM`; `fetch ROOT NAME ADDRESS REGION`, and `fetch-shared` with the same words; with `--nodes ADDRESS,...`,
`--sharded`, and `--turn N`, by which the parts move on from node to node.

Whatever ends one of them, the next call goes on from what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Final

from payload import objects
from payload.carrying import check, copy
from payload.fetching import fetch, fetch_shared, journals_removed, known, with_hashes
from payload.intake import BrokenOffError, receive
from payload.manifest import Entry, Manifest, ManifestError, shard
from payload.meter import Emit, account
from payload.objects import DeniedError, Prefix
from payload.rank import read_address
from payload.shelf import DamagedError, FullError, Shelf, ShelfError

_KINDS: Final = (
    (FullError, "full"),
    (DamagedError, "damaged"),
    (DeniedError, "denied"),
    (BrokenOffError, "broken off"),
    (PermissionError, "refused"),
)
HEARTBEAT_S: Final = 2.0
_COMMANDS: Final = ("begin", "list", "receive", "finish", "check", "copy", "fetch", "fetch-shared")


def own_index(addresses: Sequence[str], mine: Iterable[str] | None = None) -> int:
    """Return which of these nodes this one is, by its own addresses. Raises ShelfError where it is none."""
    own = set(mine) if mine is not None else {read_address(name) for _, name in socket.if_nameindex()}
    for index, address in enumerate(addresses):
        if address in own:
            return index
    raise ShelfError("this node has joined since the work began: repeat the command")


def begin(shelf: Shelf, text: str, emit: Emit) -> None:
    """Begin a data set on the shared file system."""
    given = Manifest.from_text(text)
    seen = known(shelf)
    wanted = Manifest.of((seen.get((e.path, e.size, e.etag), e) for e in given.entries), given.source)
    foreign = shelf.begin(wanted)
    found = sum(shelf.path(entry).is_file() for entry in wanted.entries)
    emit({"done": {"foreign": foreign, "found": found}})


def finish(shelf: Shelf, emit: Emit) -> None:
    """Write the manifest of a data set that is whole."""
    coming = shelf.coming()
    manifest = Manifest.of(with_hashes(shelf, coming), coming.source)
    shelf.finish(manifest)
    journals_removed(shelf)
    emit({"done": account(manifest, 0, 0)})


def take_in(shelf: Shelf, stream: IO[bytes], emit: Emit, every_s: float = HEARTBEAT_S) -> None:
    """Receive the files of a stream, and tell now and then that somebody is there."""
    count = {"files": 0, "bytes": 0}
    over = threading.Event()

    def stored(entry: Entry) -> None:
        count["files"] += 1
        count["bytes"] += entry.size

    def tell() -> None:
        while not over.wait(every_s):
            emit(dict(count))

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        with shelf.locked():
            receive(shelf, stream, stored)
    finally:
        over.set()
        teller.join()
    emit({"done": count})


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="payload.stage", description=__doc__)
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--nodes", default="", help="addresses of the nodes that share the work, in order")
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--turn", type=int, default=0)
    return parser.parse_args(argv)


def _carry_out(options: argparse.Namespace, emit: Emit) -> None:
    words: list[str] = options.words
    if options.command == "list":
        prefix = Prefix.parse(*words)
        listed = objects.listing(prefix)
        sys.stdout.write(Manifest.of(listed, str(prefix)).to_text())
        return
    shelf = Shelf(root=Path(words[0]), name=words[1])
    addresses = options.nodes.split(",") if options.nodes else []

    def part(entries: Sequence[Entry]) -> Sequence[Entry]:
        if not addresses:
            return entries
        return shard(entries, (own_index(addresses) + options.turn) % len(addresses), len(addresses))

    def kept(entries: Sequence[Entry]) -> Sequence[Entry]:
        return part(entries) if options.sharded else entries

    if options.command == "begin":
        begin(shelf, sys.stdin.read(), emit)
    elif options.command == "receive":
        take_in(shelf, sys.stdin.buffer, emit)
    elif options.command == "finish":
        finish(shelf, emit)
    elif options.command == "check":
        check(shelf, part(shelf.listed().entries), emit)
    elif options.command == "copy":
        shared = Shelf(root=Path(words[2]), name=words[1])
        whole = shared.manifest()
        copy(shared, shelf, kept(whole.entries), whole.source, emit)
    elif options.command == "fetch":
        fetch(Prefix.parse(*words[2:4]), shelf, kept, emit)
    else:
        entries = shelf.coming().entries
        fetch_shared(Prefix.parse(*words[2:4]), shelf, part(entries), options.single, emit)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 where all is well, 1 with one line that says what was wrong."""
    lock = threading.Lock()

    def emit(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    # Whoever asked has gone: what is half written is removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        _carry_out(_parse(argv), emit)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ShelfError, ManifestError, OSError) as error:
        kind = next((word for kind, word in _KINDS if isinstance(error, kind)), "")
        emit({"error": str(error), "kind": kind})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
