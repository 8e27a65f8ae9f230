"""The nodes' side of `fab stage-data`: `python3 -m agent.staging.node_commands COMMAND ...` prints JSON lines.

On the master: `serve` runs commands from its standard input, and `list ADDRESS REGION` lists a bucket's objects.
On each node, for its part of the files: `check ROOT NAME`, `fetch ROOT NAME ADDRESS REGION` to its own disk, and
`fetch-shared` with the same words to the shared file system. `--nodes ADDRESS,...` are the nodes that share the work.
Without `--sharded`, `fetch` fetches all files. In each `--round N`, a node has another part.
`agent.staging.copy_to_local` copies to a worker's own disk.

An interrupted command is continued by the next call.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from agent.staging import s3_objects
from agent.staging.copy_to_local import check, part_of, run_and_report
from agent.staging.manifest import Entry, Manifest
from agent.staging.progress import Emit, summary
from agent.staging.s3_objects import Prefix, fetch_shared, fetch_to_disk, known_hashes, remove_journals, with_hashes
from agent.staging.small_files import Packer
from agent.staging.staged_dataset import StagedDataset
from agent.staging.upload_stream import TruncatedStreamError, receive

HEARTBEAT_S: Final = 2.0
_COMMANDS: Final = ("serve", "list", "check", "fetch", "fetch-shared")


def begin(dataset: StagedDataset, text: str, emit: Emit) -> None:
    """Begin to stage a data set on the shared file system: write its pending manifest, given as `text`.

    Hashes of objects that were fetched before are added. Emits the number of files in the directory that the manifest
    does not list (`foreign`), and of listed files that are already there (`found`). Raises ManifestError or
    DatasetError.
    """
    given = Manifest.from_text(text)
    seen = known_hashes(dataset)
    wanted = Manifest.of((seen.get((e.path, e.size, e.etag), e) for e in given.entries), given.source)
    foreign = dataset.begin(wanted)
    found = len(dataset.existing_paths(wanted.entries))
    emit({"done": {"foreign": foreign, "found": found}})


def finish(dataset: StagedDataset, emit: Emit) -> None:
    """Write the manifest of a data set whose files are all stored, and emit its summary.

    Also removes the pending manifest and the journals of fetched files. Raises DatasetError if a file is missing or its
    hash is unknown.
    """
    coming = dataset.pending()
    manifest = Manifest.of(with_hashes(dataset, coming), coming.source)
    dataset.finish(manifest)
    remove_journals(dataset)
    emit({"done": summary(manifest, 0, 0)})


def receive_files(dataset: StagedDataset, stream: IO[bytes], emit: Emit, *, packing: bool = False) -> None:
    """Receive the files of a stream into a data set, and emit their number and bytes.

    With `packing`, also write the small files into a pack. Raises the errors of `upload_stream.receive`.
    """
    count = {"files": 0, "bytes": 0}

    def stored(entry: Entry) -> None:
        count["files"] += 1
        count["bytes"] += entry.size

    with dataset.locked():
        if packing:
            with Packer(dataset) as packer:
                receive(dataset, stream, stored, packer)
        else:
            receive(dataset, stream, stored)
    emit({"done": count})


def serve(stream: IO[bytes], emit: Emit, every_s: float = HEARTBEAT_S) -> None:
    """Run commands until the stream ends. Each command is a line of JSON, followed by its data.

    `{"reserve": [ROOT, NAME]}` comes first and holds until the end of the stream. Then come:
    `{"begin": [ROOT, NAME], "bytes": N}` with N bytes of a manifest,
    `{"receive": [ROOT, NAME], "packing": BOOL}` with the files, and `{"finish": [ROOT, NAME]}`.
    The answer to each is a line with `done`. A second thread emits `{"alive": true}` every `every_s` seconds, also
    while a command runs, so `emit` must be thread-safe. Raises BusyDatasetError if another command has the reservation,
    the errors of `begin`, `receive_files` and `finish`, and OSError.
    """
    over = threading.Event()

    def send_heartbeats() -> None:
        while not over.wait(every_s):
            emit({"alive": True})

    threading.Thread(target=send_heartbeats, daemon=True).start()
    try:
        with contextlib.ExitStack() as reserved:
            while line := stream.readline():
                _serve_one(json.loads(line), stream, emit, reserved)
    finally:
        over.set()


def _serve_one(request: Mapping[str, Any], stream: IO[bytes], emit: Emit, reserved: contextlib.ExitStack) -> None:
    """Run one command of `serve`. `reserved` keeps the reservation until the stream ends.

    Raises TruncatedStreamError if the stream ends within the command's data, or another DatasetError.
    """
    command = next(word for word in ("reserve", "begin", "receive", "finish") if word in request)
    root, name = request[command]
    dataset = StagedDataset(root=Path(root), name=name)
    match command:
        case "reserve":
            reserved.enter_context(dataset.reserved())
            emit({"done": {}})
        case "begin":
            text = stream.read(request["bytes"])
            if len(text) < request["bytes"]:
                raise TruncatedStreamError("the connection from the laptop was closed before the end of the manifest")
            begin(dataset, text.decode("ascii"), emit)
        case "receive":
            receive_files(dataset, stream, emit, packing=request["packing"])
        case _:
            finish(dataset, emit)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agent.staging.node_commands", description=__doc__)
    parser.add_argument("command", choices=_COMMANDS, help="see above")
    parser.add_argument("words", nargs="*", help="the arguments of the command, see above")
    parser.add_argument("--nodes", default="", help="addresses of the nodes that share the work, in order")
    parser.add_argument("--sharded", action="store_true", help="fetch only this node's part of the files")
    parser.add_argument("--single", action="store_true", help="the address may be that of one object, not a folder")
    parser.add_argument("--round", type=int, default=0, help="in each round, a node has another part of the files")
    return parser.parse_args(argv)


def _carry_out(options: argparse.Namespace, emit: Emit) -> None:
    words: list[str] = options.words
    if options.command == "serve":
        serve(sys.stdin.buffer, emit)
        return
    if options.command == "list":
        prefix = Prefix.parse(*words)
        listed = s3_objects.listing(prefix)
        sys.stdout.write(Manifest.of(listed, str(prefix)).to_text())
        return
    dataset = StagedDataset(root=Path(words[0]), name=words[1])
    addresses = options.nodes.split(",") if options.nodes else []

    def part(entries: Sequence[Entry]) -> Sequence[Entry]:
        return part_of(entries, addresses, options.round)

    if options.command == "check":
        check(dataset, part(dataset.listed().entries), emit)
    elif options.command == "fetch":
        fetch_to_disk(Prefix.parse(*words[2:4]), dataset, part if options.sharded else lambda entries: entries, emit)
    else:
        entries = dataset.pending().entries
        fetch_shared(Prefix.parse(*words[2:4]), dataset, part(entries), options.single, emit)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv`; print its messages, or the error, as lines of JSON. `list` prints a manifest.

    Return the exit status, 0 or 1.
    """
    return run_and_report(lambda emit: _carry_out(_parse(argv), emit))


if __name__ == "__main__":
    sys.exit(main())
