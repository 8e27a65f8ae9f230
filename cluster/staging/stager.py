"""Stage data to the nodes: one upload from the laptop for any number of nodes, and no upload for data in a bucket."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from agent.spec.laptop_requests import RemoteCommand
from agent.spec.nodes import MASTER_NAME, NODE_PYTHON, Node
from agent.staging.manifest import Entry, Manifest, ManifestError
from agent.staging.upload_stream import SEND_BLOCK, coalesced, framed
from cluster.errors import RemoteError
from cluster.master_answers import AnswerError
from cluster.ssh import command_on_nodes
from cluster.ssh.command_on_nodes import short
from cluster.ssh.master import Master
from cluster.staging.connection import StagingConnection
from cluster.staging.files_to_stage import MAX_PATHS
from cluster.staging.node_reports import SHARED, Reports, StagingError
from cluster.terminal.progress import ProgressDisplay

ROUNDS: Final = 2
"""Maximum number of uploads. Files that are missing or damaged after the first one are sent again."""
READER_FILES: Final = 2000
READER_BYTES: Final = 128 << 20
"""Files or bytes that one worker reads in about a second. For fewer, starting another worker takes longer than it
saves.
"""


def readers(manifest: Manifest) -> int:
    """Return how many workers should verify these files: one for each READER_FILES files or READER_BYTES bytes.

    It is at least two, because one worker can read wrongly. The cluster may have fewer.
    """
    return max(2, -(-len(manifest.entries) // READER_FILES), -(-manifest.size // READER_BYTES))


class Stager:
    """Stage one data set. Every step can be interrupted and repeated."""

    def __init__(
        self,
        master: Master,
        directory: str,
        shared_agent: str,
        root: str,
        name: str,
        workers: Sequence[Node],
        progress: ProgressDisplay,
    ) -> None:
        """Use the agent in `directory` on the master, and the one in `shared_agent` on the workers.

        `root` is the directory of the data sets on the shared file system, `name` the name of this data set.
        """
        self._master, self._directory, self._root, self._name = master, directory, root, name
        self._shared_agent = shared_agent
        self._workers, self._progress = tuple(workers), progress

    @contextlib.contextmanager
    def _connect(self) -> Iterator[StagingConnection]:
        """Connect to the master and reserve the data set for the block. Raises StagingError if it is busy."""
        with StagingConnection(self._master, self._command("serve"), self._directory) as connection:
            connection.request({"reserve": [self._root, self._name]})
            yield connection

    def upload(self, root: Path, manifest: Manifest) -> int:
        """Upload files below `root` to the shared file system, and verify them there. Return the bytes sent.

        Files that are there already are not sent. Raises the errors of `StagingConnection.request`, and StagingError if
        files still differ after two uploads.
        """
        return self._upload(root, manifest, lambda attempt: self.missing(manifest, attempt), packing=False)

    def upload_and_copy(self, root: Path, manifest: Manifest, disks: str, *, sharded: bool) -> tuple[int, Reports]:
        """Upload files to the shared file system, and copy them to `disks`, a directory on each worker.

        With `sharded`, each worker gets a part of the files. Returns the bytes sent and the reports of the workers,
        which have the counts of each in `done`. Raises the errors of `upload`.
        """
        rounds: list[Reports] = []

        def copy(attempt: int) -> tuple[Entry, ...]:
            rounds.append(self._copy(manifest, disks, attempt, sharded=sharded))
            return self._lacking(manifest, rounds[-1], attempt)

        sent = self._upload(root, manifest, copy, packing=True)
        for earlier in rounds[:-1]:
            for host, done in earlier.done.items():
                rounds[-1].done[host]["came_bytes"] += done["came_bytes"]
        return sent, rounds[-1]

    def _upload(
        self, root: Path, manifest: Manifest, lacking: Callable[[int], tuple[Entry, ...]], *, packing: bool
    ) -> int:
        """Send the missing files below `root` and verify them; return the bytes sent.

        `lacking` returns the files that are missing or damaged after an attempt. They are sent once more. With
        `packing`, the master also writes small files into a pack. Raises StagingError if files still differ then.
        """
        place, text = [self._root, self._name], manifest.to_text().encode("ascii")
        with self._connect() as connection:
            status = connection.request({"begin": place, "bytes": len(text)}, (text,))
            self._warn_of_foreign(status["foreign"], MASTER_NAME)
            missing = manifest.entries
            if status["found"] == len(manifest.entries):
                missing = lacking(0)
            elif status["found"]:
                missing = self.missing(manifest) or lacking(0)  # workers copy only complete data
            sent = attempt = 0
            while missing and attempt < ROUNDS:
                attempt += 1
                size = sum(entry.size for entry in missing)
                self._progress.begin("uploading", len(missing), size)
                files = self._counted(coalesced(framed(root, missing), SEND_BLOCK), len(missing))
                connection.request({"receive": place, "packing": packing}, files)
                sent += size
                missing = lacking(attempt)
            if missing:
                listed = ", ".join(ascii(entry.path) for entry in missing[:MAX_PATHS])
                raise StagingError({SHARED: f"{len(missing)} files are damaged after the upload: {listed}"}, "damaged")
            connection.request({"finish": place})
        return sent

    def missing(self, manifest: Manifest, attempt: int = 0, among: int | None = None) -> tuple[Entry, ...]:
        """Verify the files on the shared file system, a part on each worker; return the missing and damaged ones.

        In another `attempt`, each worker verifies another part. `among` is the number of workers; by default it depends
        on the amount of data. Without workers, the master verifies the files. Raises StagingError or AnswerError.
        """
        self._progress.begin("checking the shared file system", len(manifest.entries), manifest.size)
        tree = self._shared_agent if self._workers else "."  # the master uses the agent that runs the fan-out
        words = [tree, "agent.staging.node_commands", "check", self._root, self._name, "--round", str(attempt)]
        return self._lacking(
            manifest, self._on_nodes(words, are_module=True, among=among or readers(manifest)), attempt
        )

    def _lacking(self, manifest: Manifest, reports: Reports, attempt: int) -> tuple[Entry, ...]:
        """Return the files that the shared file system lacks, from the workers' reports.

        In the first attempt (0), also print the files that were damaged since an earlier staging. Raises AnswerError
        for a file that is not in the manifest.
        """
        entries = manifest.by_path()
        for path in sorted({path for _, path in reports.paths["spoiled"]}) if not attempt else ():
            self._progress.note(f"damaged on the shared file system, staged again: {path!a}")
        missing = sorted({path for _, path in reports.paths["missing"]})
        if unknown := [path for path in missing if path not in entries]:
            raise AnswerError(
                "the question which files are missing",
                unknown[0],
                "the file is not in the data set",
                where=self._master.where,
            )
        return tuple(entries[path] for path in missing)

    def _copy(self, manifest: Manifest, disks: str, attempt: int, *, sharded: bool) -> Reports:
        """Copy the data from the shared file system to `disks`, a directory on each worker; with `sharded`, a part to
        each worker.

        Return the workers' reports. In another `attempt`, each worker verifies another part of the shared copy. Raises
        StagingError.
        """
        times = 1 if sharded else len(self._workers)
        self._progress.begin("copying to the workers", times * len(manifest.entries), times * manifest.size)
        flags = [*(["--sharded"] if sharded else []), f"--round={attempt}", f"--digest={manifest.digest}"]
        words = [self._shared_agent, "agent.staging.copy_to_local", disks, self._name, self._root, *flags]
        return self._check_reports(self._on_nodes(words, are_module=True, as_rank=True))

    def fetch(self, address: str, region: str, root: str, *, sharded: bool) -> Reports:
        """Fetch a bucket's objects to `root` on the workers' disks; with `sharded`, a part to each worker.

        Return the workers' reports, which have the counts of each in `done`. `address` is s3://BUCKET/PREFIX, `region`
        an AWS region. Raises StagingError if it fails on a worker, or if the workers have received different data.
        """
        manifest = self.listing(address, region)
        times = 1 if sharded else len(self._workers)
        self._progress.begin("fetching to the workers", times * len(manifest.entries), times * manifest.size)
        flags = ["--sharded"] if sharded else []
        words = self._command("fetch", root, self._name, address, region, *flags)
        with self._connect():  # reserve it, or some workers could end up with another command's data
            reports = self._check_reports(self._on_nodes(words, as_rank=True))
        if len({done["listing" if sharded else "digest"] for done in reports.done.values()}) > 1:
            hosts = ", ".join(short(host) for host in reports.done)
            raise StagingError(
                {hosts: f"received different data, because {address} has changed in the meantime"}, "damaged"
            )
        return reports

    def fetch_shared(self, address: str, region: str) -> Manifest:
        """Fetch a bucket's objects to the shared file system, and verify them. Each worker fetches a part.

        Return the manifest, with hashes. `address` is s3://BUCKET/PREFIX, `region` an AWS region. Raises StagingError.
        """
        listed = self.listing(address, region)
        place, text = [self._root, self._name], listed.to_text().encode("ascii")
        with self._connect() as connection:
            status = connection.request({"begin": place, "bytes": len(text)}, (text,))
            self._warn_of_foreign(status["foreign"], MASTER_NAME)
            self._progress.begin("fetching to the shared file system", len(listed.entries), listed.size)
            single = ["--single"] if len(listed.entries) == 1 else []
            self._on_nodes(self._command("fetch-shared", self._root, self._name, address, region, *single))
            connection.request({"finish": place})
            manifest = self._read_manifest()
            missing = self.missing(manifest, attempt=1, among=len(self._workers))  # each part by another worker
        if missing:
            listed_paths = ", ".join(ascii(entry.path) for entry in missing[:MAX_PATHS])
            what = f"{len(missing)} files are damaged after the download: {listed_paths}"
            raise StagingError({SHARED: what}, "damaged")
        return manifest

    def listing(self, address: str, region: str) -> Manifest:
        """Return a manifest of the objects below `address`, s3://BUCKET/PREFIX, listed from the master.

        It has their sizes and ETags, but no hashes. Raises StagingError, also without objects, RemoteError or
        AnswerError.
        """
        done = self._master.run(self._command("list", address, region), directory=self._directory)
        if done.status:
            self._raise_failure(done.status, done.text, done.stderr)
        return self._manifest(done.text)

    def _read_manifest(self) -> Manifest:
        """Return the manifest of the data set on the shared file system. Raises RemoteError or AnswerError."""
        done = self._master.check(["cat", f"{self._root}/{self._name}.manifest"], doing="reading the manifest")
        return self._manifest(done.text)

    def _manifest(self, text: str) -> Manifest:
        try:
            return Manifest.from_text(text)
        except ManifestError as error:
            raise AnswerError("the question which files to stage", text, str(error), where=self._master.where) from None

    def _command(self, *words: str) -> list[str]:
        return [NODE_PYTHON, "-X", "utf8", "-m", "agent.staging.node_commands", *words]

    def _raise_failure(self, status: int, text: str, stderr: str) -> None:
        """Raise the error for a failed command on the master: StagingError with its report, else RemoteError."""
        reports = Reports(None, self._master.where)
        for line in text.splitlines():
            if line.startswith('{"error"'):
                reports.take(MASTER_NAME, line)
        reports.check()
        raise RemoteError(
            "staging failed on the master", status=status, output=stderr or text, where=self._master.where
        )

    def _on_nodes(
        self, words: Sequence[str], *, are_module: bool = False, among: int | None = None, as_rank: bool = False
    ) -> Reports:
        """Run a command on all workers, or the first `among` of them; on the master if there are no workers.

        With `are_module`, `words` are a tree, a module in it, and the module's arguments. `as_rank` runs the command as
        the ranks' user, who then owns the files. The shared file system belongs to the login user. Returns the reports.
        Raises StagingError if the command fails on a node.
        """
        nodes = self._workers[:among]
        addresses = [f"--nodes={','.join(node.address for node in nodes)}"] if nodes else []
        request = RemoteCommand(
            command=(*words, *addresses),
            nodes=len(nodes) if len(nodes) < len(self._workers) else 0,
            master=not nodes,
            is_module=are_module,
            as_rank=as_rank,
            environment=(("PYTHONPATH", self._shared_agent if nodes else self._directory),),
        )
        reports = Reports(self._progress, self._master.where)
        results = command_on_nodes.run(self._master, self._directory, request, reports)
        for result in results:
            if result.failed and result.name not in reports.errors:
                reports.errors[result.name] = (result.reason, "")
        reports.check()
        return reports

    def _check_reports(self, reports: Reports) -> Reports:
        """Print the damage that the workers found and repaired, and return the reports.

        Raises AnswerError if a worker succeeded without a report.
        """
        if missing := [node.name for node in self._workers if node.name not in reports.done]:
            what = f"{', '.join(missing)} reported nothing"
            raise AnswerError("a staging command", sorted(reports.done), what, where=self._master.where)
        for host, path in reports.paths["damaged"]:
            self._progress.note(f"damaged on {short(host)}, staged again: {path!a}")
        for host, done in reports.done.items():
            self._warn_of_foreign(done["foreign"], host)
        return reports

    def _warn_of_foreign(self, count: int, host: str) -> None:
        if count:
            where = SHARED if host == MASTER_NAME else short(host)
            self._progress.note(f"kept {count:,} other files that are in the directory of the data set on {where}")

    def _counted(self, blocks: Iterable[bytes], files: int) -> Iterator[bytes]:
        sent = 0
        for block in blocks:
            yield block
            sent += len(block)
            self._progress.at(files, sent)
