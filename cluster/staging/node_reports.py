"""Reports of the nodes while data is staged, and the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.spec.nodes import RANK_USER
from cluster import master_answers as answers
from cluster.errors import DeepcdkError
from cluster.master_answers import AnswerError, Counts
from cluster.ssh.command_on_nodes import short
from cluster.terminal.progress import ProgressDisplay
from cluster.terminal.units import amount

SHARED: Final = "the shared file system"
REMEDIES: Final = {
    "full": "free space on this disk: `fab clean` removes unused files, `fab run -- df -h` shows all disks. Or give "
    "the workers a larger worker_volume_gib, or a type with an instance store and scratch_mount; or stage less "
    "per worker with --sharded. Then repeat the command",
    "damaged": "repeat the command, which stages damaged files again",
    "denied": "add the bucket to data_buckets of cdk.json, run `fab up`, and `fab replace` the workers that booted "
    "while cdk.json named no bucket. A bucket of another account must also allow the nodes' roles in its "
    "policy",
    "refused": f"make this path accessible, for the login user on the shared file system or for {RANK_USER} on a "
    "worker's disk, then repeat the command",
    "busy": "wait until the other command ends, then repeat, or give another --name. If its laptop lost the "
    "connection, it ends within minutes",
    "broken off": "repeat the command; complete files are kept",
}


class StagingError(DeepcdkError, RuntimeError):
    """Report that staging failed on some nodes. `failures` maps nodes to messages.

    `kind` is the kind of the first failure, which decides the remedy in REMEDIES.
    """

    def __init__(self, failures: Mapping[str, str], kind: str) -> None:
        self.failures, self.kind = dict(failures), kind
        lines = "".join(f"\n  {host}: {text}" for host, text in failures.items())
        super().__init__(
            f"staging failed on {len(failures)} nodes{lines}" if len(failures) > 1 else f"staging failed{lines}",
            remedy=REMEDIES.get(kind, "fix the cause, then repeat the command; complete files are kept"),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagingResult:
    """The staged data set: its source, directory and size."""

    name: str
    source: str
    to: str
    """shared or local."""
    directory: str
    """Directory on the shared file system, or on each worker."""
    files: int
    """Number of files in the whole data set."""
    bytes: int
    """Size of the whole data set."""
    sha256: str
    """One hash for all names and contents; "" for local data from a bucket."""
    uploaded_bytes: int
    """Bytes sent from this machine; 0 if all files were there already or came from a bucket."""
    sharded: bool
    seconds: float
    """From the connection to the master to the end."""
    nodes: dict[str, dict[str, int]]
    """For local staging, by worker: its files and bytes, and the newly received bytes."""

    def __str__(self) -> str:
        """Describe the result in a few lines: files, size, uploaded bytes, what each node has and received, and the
        directory.
        """
        came = f"{amount(self.uploaded_bytes)} uploaded" if self.uploaded_bytes else "nothing uploaded"
        lines = [f"{self.name}: {self.files:,} files, {amount(self.bytes)}, all checksums correct; {came}"]
        for host, held in self.nodes.items():
            new = amount(held["came_bytes"]) if held["came_bytes"] else "nothing"
            lines.append(f"  {short(host)}: {held['files']:,} files, {amount(held['bytes'])}; {new} new")
        return "\n".join([*lines, f"directory: {self.directory}"])


_MESSAGE: Final = answers.fields(
    files=answers.maybe(answers.whole),
    bytes=answers.maybe(answers.whole),
    done=answers.maybe(answers.counts),
    error=answers.maybe(answers.text),
    kind=answers.maybe(answers.text),
    **dict.fromkeys(("missing", "spoiled", "damaged"), answers.maybe(answers.each(answers.text))),
)


def _parse(line: bytes | str, where: str) -> dict[str, Any]:
    """Parse a node's message, without null values. `where` names the master. Raises AnswerError if it is invalid."""
    text = line if isinstance(line, str) else line.decode("utf-8", errors="replace")
    parsed = answers.read(text, _MESSAGE, "a staging command", where=where)
    message = {key: value for key, value in parsed.items() if value is not None}
    for key, other in (("files", "bytes"), ("error", "kind")):
        if key in message and other not in message:
            raise AnswerError("a staging command", parsed, f"it contains {key}, but not {other}", where=where)
    return message


class Reports:
    """Collect the JSON lines of all nodes, and show their total progress."""

    def __init__(self, progress: ProgressDisplay | None, where: str = "") -> None:
        """Show the total progress with `progress`, unless it is None. `where` names the master in errors."""
        self._display, self._where = progress, where
        self._rests: dict[str, bytes] = {}
        self._progress: dict[str, tuple[int, int]] = {}
        self.done: dict[str, dict[str, Any]] = {}
        """By node: the counts of its last answer. A node without an answer, or with an error, is missing."""
        self.paths: dict[str, list[tuple[str, str]]] = {"missing": [], "spoiled": [], "damaged": []}
        """Node and path of files: missing on the shared file system, damaged since an earlier staging, or repaired."""
        self.errors: dict[str, tuple[str, str]] = {}
        """By node: its error message and the kind of the error."""

    def expect(self, hosts: Sequence[str]) -> None:
        """Do nothing: the names of the nodes are not needed here."""

    def feed(self, host: str, stream: str, data: bytes) -> None:
        """Process a part of a node's output: its complete lines. Standard error is ignored. Raises AnswerError for an
        invalid line.
        """
        if stream != "stdout":
            return
        *lines, self._rests[host] = (self._rests.get(host, b"") + data).split(b"\n")
        for line in lines:
            self.take(host, line)

    def end(self, host: str) -> None:
        """Do nothing: the end of a node's output is not needed here."""

    def take(self, host: str, line: bytes | str) -> None:
        """Process one line of a node's output: keep its progress, counts, error and paths, and show the total progress.

        Raises AnswerError if it is invalid.
        """
        message = _parse(line, self._where)
        if "files" in message:
            self._progress[host] = (message["files"], message["bytes"])
            if self._display:
                done = self._progress.values()
                self._display.at(sum(files for files, _ in done), sum(size for _, size in done))
        elif "done" in message:
            self.done[host] = Counts(message["done"], self._where)
        elif "error" in message:
            self.errors[host] = (message["error"], message["kind"])
        for kind, found in self.paths.items():
            found.extend((host, path) for path in message.get(kind, ()))

    def check(self) -> None:
        """Raise StagingError if a node reported an error. Its message has all errors, its remedy is for the first."""
        if self.errors:
            kind = next(kind for _, kind in self.errors.values())
            raise StagingError({short(host): text for host, (text, _) in self.errors.items()}, kind)
