"""Data to the nodes: one upload whatever their number, none from a bucket; all else is between them and the disks."""

from __future__ import annotations

import dataclasses
import json
import queue
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cluster import fanout
from cluster.connection import Master, SilenceError
from cluster.errors import DeepcdkError, RemoteError
from cluster.fanout import SILENCE_S, short
from cluster.gauge import Gauge
from cluster.reader import Interruptible
from cluster.source import NAMED, Source
from payload.fanout import Request
from payload.intake import SEND_BLOCK, ChangedError, coalesced, framed
from payload.launch import MASTER_NAME, NODE_PYTHON, Node
from payload.manifest import Entry, Manifest, ManifestError

ROUNDS: Final = 2
"""How often what is found missing or damaged after an upload is sent again."""
SHARED: Final = "the shared file system"
_REMEDIES: Final = {
    "full": "make room there: `fab run -- df -h` shows all disks. Give the workers a larger worker_volume_gib, "
    "or a type with an instance store and scratch_mount; or stage less to each with --sharded. Then repeat the command",
    "damaged": "repeat the command: what is damaged is staged again",
    "denied": "name the bucket in data_buckets of cdk.json, then `fab up`; "
    "a bucket of another account must allow the nodes' roles by its own policy as well",
    "refused": "let the login user write there. Clusters of an earlier version have no directory for data: "
    "`fab run --master -- sh -c 'sudo install -d -o \"$USER\" /mnt/efs/data'`, with your efs_mount",
    "broken off": "repeat the command: what has arrived whole stays",
}


class StagingError(DeepcdkError, RuntimeError):
    """Report the nodes on which staging failed; `failures` holds each one's words."""

    def __init__(self, failures: Mapping[str, str], kind: str) -> None:
        self.failures, self.kind = dict(failures), kind
        lines = "".join(f"\n  {host}: {text}" for host, text in failures.items())
        super().__init__(
            f"staging failed on {len(failures)} nodes{lines}" if len(failures) > 1 else f"staging failed{lines}",
            remedy=_REMEDIES.get(kind, "mend it, then repeat the command: what has arrived whole stays"),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Staged:
    """Say what was staged, and where it lies."""

    name: str
    source: str
    to: str
    """shared, or local."""
    directory: str
    """On the shared file system, or on each worker."""
    files: int
    """Of the whole data set."""
    bytes: int
    sha256: str
    """One hash for all names and contents."""
    uploaded_bytes: int
    """From this machine; 0 where all was there already, and from a bucket."""
    sharded: bool
    nodes: dict[str, dict[str, int]]
    """By worker, with `local`: the files and bytes that it holds, and how many bytes came now."""

    def __str__(self) -> str:
        """Say it in a few lines."""
        from cluster.gauge import amount

        came = f"{amount(self.uploaded_bytes)} uploaded" if self.uploaded_bytes else "nothing uploaded"
        lines = [f"{self.name}: {self.files:,} files, {amount(self.bytes)}, all checksums right; {came}"]
        for host, held in self.nodes.items():
            new = amount(held["came_bytes"]) if held["came_bytes"] else "nothing"
            lines.append(f"  {short(host)}: {held['files']:,} files, {amount(held['bytes'])}; {new} new")
        return "\n".join([*lines, f"it lies in {self.directory}"])


class Reports:
    """Gather what each node says in JSON lines, and show how far they are together."""

    def __init__(self, gauge: Gauge | None) -> None:
        self._gauge = gauge
        self._rests: dict[str, bytes] = {}
        self._progress: dict[str, tuple[int, int]] = {}
        self.done: dict[str, dict[str, Any]] = {}
        self.paths: dict[str, list[tuple[str, str]]] = {"missing": [], "damaged": []}
        """By kind: node and path."""
        self.errors: dict[str, tuple[str, str]] = {}
        """By node: its words and their kind."""

    def expect(self, hosts: Sequence[str]) -> None:
        """Learn who is asked."""

    def feed(self, host: str, stream: str, data: bytes) -> None:
        """Take what came of a node's output."""
        if stream != "stdout":
            return
        *lines, self._rests[host] = (self._rests.get(host, b"") + data).split(b"\n")
        for line in lines:
            self.take(host, line)

    def end(self, host: str) -> None:
        """Take note that no more will come of a node."""

    def take(self, host: str, line: bytes | str) -> None:
        """Take one line."""
        message: dict[str, Any] = json.loads(line)
        if "files" in message:
            self._progress[host] = (message["files"], message["bytes"])
            if self._gauge:
                done = self._progress.values()
                self._gauge.at(sum(files for files, _ in done), sum(size for _, size in done))
        elif "done" in message:
            self.done[host] = message["done"]
        elif "error" in message:
            self.errors[host] = (message["error"], message["kind"])
        for kind, found in self.paths.items():
            found.extend((host, path) for path in message.get(kind, ()))

    def check(self) -> None:
        """Raise StagingError where a node said that it failed."""
        if self.errors:
            kind = next(kind for _, kind in self.errors.values())
            raise StagingError({short(host): text for host, (text, _) in self.errors.items()}, kind)


class Stager:
    """Stage one data set. Everything that it does can be interrupted, and repeated."""

    def __init__(
        self, master: Master, directory: str, root: str, name: str, workers: Sequence[Node], gauge: Gauge
    ) -> None:
        """`directory` is the pushed tree with the nodes' side, `root` where data sets lie on the shared file system."""
        self._master, self._directory, self._root, self._name = master, directory, root, name
        self._workers, self._gauge = tuple(workers), gauge

    def upload(self, source: Source) -> tuple[Manifest, int]:
        """Bring files of this machine to the shared file system; return what lies there, and what was sent of it."""
        self._gauge.begin("reading", len(source.files), source.size)
        manifest = source.manifest(self._gauge.at)
        begun = self._ask("begin", self._root, self._name, stdin=manifest.to_text().encode("ascii"))
        self._warn_of_foreign(begun["foreign"], MASTER_NAME)
        missing = self.missing(manifest) if begun["found"] else manifest.entries
        sent = 0
        for turn in range(1, ROUNDS + 1):
            if not missing:
                break
            self._send(source.root, missing)
            sent += sum(entry.size for entry in missing)
            missing = self.missing(manifest, turn)
        if missing:
            listed = ", ".join(ascii(entry.path) for entry in missing[:NAMED])
            raise StagingError({SHARED: f"{len(missing)} files read back other bytes: {listed}"}, "damaged")
        self._ask("finish", self._root, self._name)
        return manifest, sent

    def missing(self, manifest: Manifest, turn: int = 0) -> tuple[Entry, ...]:
        """Have the workers read all that lies there, each a part; return what is missing or damaged.

        With another `turn` each reads another part.
        """
        self._gauge.begin("checking the shared file system", len(manifest.entries), manifest.size)
        reports = self._on_nodes("check", self._root, self._name, "--turn", str(turn))
        entries = manifest.by_path()
        for _, path in reports.paths["damaged"] if not turn else ():
            self._gauge.note(f"damaged on the shared file system, staged again: {path!a}")
        return tuple(sorted((entries[path] for _, path in reports.paths["missing"]), key=lambda entry: entry.path))

    def copy(self, root: str, *, sharded: bool) -> Reports:
        """Have each worker copy the data, or its shard, from the shared file system to its own disk."""
        manifest = self._read_manifest()
        times = 1 if sharded else len(self._workers)
        self._gauge.begin("copying to the workers", times * len(manifest.entries), times * manifest.size)
        flags = ["--sharded"] if sharded else []
        return self._told(self._on_nodes("copy", root, self._name, self._root, *flags))

    def fetch(self, address: str, region: str, root: str, *, sharded: bool) -> Reports:
        """Have each worker fetch a bucket's objects, or its shard of them, to its own disk."""
        manifest = self.listing(address, region)
        times = 1 if sharded else len(self._workers)
        self._gauge.begin("fetching to the workers", times * len(manifest.entries), times * manifest.size)
        flags = ["--sharded"] if sharded else []
        reports = self._told(self._on_nodes("fetch", root, self._name, address, region, *flags))
        if len({done["listing" if sharded else "digest"] for done in reports.done.values()}) > 1:
            hosts = ", ".join(short(host) for host in reports.done)
            raise StagingError({hosts: f"hold different bytes: {address} has changed meanwhile"}, "damaged")
        return reports

    def fetch_shared(self, address: str, region: str) -> Manifest:
        """Have the workers fetch a bucket's objects to the shared file system, each its part."""
        listed = self.listing(address, region)
        begun = self._ask("begin", self._root, self._name, stdin=listed.to_text().encode("ascii"))
        self._warn_of_foreign(begun["foreign"], MASTER_NAME)
        self._gauge.begin("fetching to the shared file system", len(listed.entries), listed.size)
        single = ["--single"] if len(listed.entries) == 1 else []
        self._on_nodes("fetch-shared", self._root, self._name, address, region, *single)
        self._ask("finish", self._root, self._name)
        manifest = self._read_manifest()
        if missing := self.missing(manifest, turn=1):
            listed_paths = ", ".join(ascii(entry.path) for entry in missing[:NAMED])
            raise StagingError({SHARED: f"reads back other bytes: {listed_paths}"}, "damaged")
        return manifest

    def listing(self, address: str, region: str) -> Manifest:
        """List what lies in a bucket, as the master sees it."""
        done = self._master.run(self._command("list", address, region), directory=self._directory)
        if done.status:
            self._explain(done.status, done.text, done.stderr)
        return Manifest.from_text(done.text)

    def _read_manifest(self) -> Manifest:
        """Read the manifest of what lies on the shared file system."""
        done = self._master.check(["cat", f"{self._root}/{self._name}.manifest"], doing="reading the manifest")
        try:
            return Manifest.from_text(done.text)
        except ManifestError as error:
            raise DeepcdkError(str(error), where=self._root, remedy="repeat the command") from None

    def _command(self, *words: str) -> list[str]:
        return [NODE_PYTHON, "-X", "utf8", "-m", "payload.stage", *words]

    def _ask(self, *words: str, stdin: bytes = b"") -> dict[str, Any]:
        """Run a command on the master to its end; return what it says of it."""
        done = self._master.run(self._command(*words), directory=self._directory, stdin=stdin)
        if done.status:
            self._explain(done.status, done.text, done.stderr)
        reports = Reports(None)
        for line in done.text.splitlines():
            reports.take(MASTER_NAME, line)
        return reports.done[MASTER_NAME]

    def _explain(self, status: int, text: str, stderr: str) -> None:
        """Raise what a failed command on the master means."""
        reports = Reports(None)
        for line in text.splitlines():
            if line.startswith('{"error"'):
                reports.take(MASTER_NAME, line)
        reports.check()
        raise RemoteError(
            "staging failed on the master", status=status, output=stderr or text, where=self._master.where
        )

    def _on_nodes(self, *words: str) -> Reports:
        """Run a command on all workers at once, or on the master where there is none."""
        addresses = [f"--nodes={','.join(node.address for node in self._workers)}"] if self._workers else []
        request = Request(
            command=tuple(self._command(*words, *addresses)),
            master=not self._workers,
            environment=(("PYTHONPATH", self._directory),),
        )
        reports = Reports(self._gauge)
        results = fanout.run(self._master, self._directory, request, reports)
        for result in results:
            if result.failed and result.name not in reports.errors:
                reports.errors[result.name] = (result.reason, "")
        reports.check()
        return reports

    def _told(self, reports: Reports) -> Reports:
        """Tell what the workers found on their disks."""
        for host, path in reports.paths["damaged"]:
            self._gauge.note(f"damaged on {short(host)}, staged again: {path!a}")
        for host, done in reports.done.items():
            self._warn_of_foreign(done["foreign"], host)
        return reports

    def _warn_of_foreign(self, count: int, host: str) -> None:
        if count:
            where = SHARED if host == MASTER_NAME else short(host)
            self._gauge.note(f"{count:,} further files in the directory on {where} were not staged by this: they stay")

    def _send(self, root: Path, entries: Sequence[Entry]) -> None:
        """Send files over the one connection."""
        self._gauge.begin("uploading", len(entries), sum(entry.size for entry in entries))
        failures: list[ChangedError] = []

        def source() -> Iterator[bytes]:
            try:
                yield from self._counted(coalesced(framed(root, entries), SEND_BLOCK), len(entries))
            except ChangedError as error:
                failures.append(error)

        lines = Interruptible(
            self._master.lines(
                self._command("receive", self._root, self._name),
                directory=self._directory,
                silence_s=SILENCE_S,
                feed=source(),
            )
        )
        reports = Reports(None)
        try:
            while (line := lines.next(timeout_s=2 * SILENCE_S)) is not None:
                reports.take(MASTER_NAME, line)
        except queue.Empty:
            raise SilenceError("the connection to the master fell silent", where=self._master.where) from None
        except RemoteError:
            if not failures:
                reports.check()
                raise
        if failures:
            raise DeepcdkError(
                str(failures[0]), remedy="repeat the command once nobody writes there: what has arrived whole stays"
            )
        reports.check()

    def _counted(self, blocks: Iterable[bytes], files: int) -> Iterator[bytes]:
        sent = 0
        for block in blocks:
            yield block
            sent += len(block)
            self._gauge.at(files, sent)
