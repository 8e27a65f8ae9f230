"""List and fetch the objects of a bucket through the AWS CLI, with the node's own role.

A data set is fetched to a node's own disks, or a part of it to the shared file system. An object is not fetched again
if there is a file with a matching hash whose entry has the object's size and ETag.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from agent.files.atomic_write import no_follow
from agent.staging.aws_cli import QUIET, AwsCliError, aws_command, running
from agent.staging.errors import DatasetError, DiskFullError, IncompleteDataError
from agent.staging.manifest import Entry, Manifest
from agent.staging.progress import Emit, ProgressMeter, summary
from agent.staging.staged_dataset import StagedDataset
from agent.staging.verified_write import unique_token

FEWEST_AT_ONCE: Final = 200
MAX_AT_ONCE: Final = 5000
"""Files per call of the CLI. Each call lists the prefix again, and a command line holds 2 MiB."""
MAX_BYTES_AT_ONCE: Final = 4 << 30
"""Bytes per call. An interrupted call is repeated from its beginning."""
POLL_S: Final = 1.0


class AccessDeniedError(DatasetError):
    """Report that the node's role does not permit listing or reading the objects."""

    kind = "denied"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prefix:
    """A prefix in a bucket: the name of a folder or of one object."""

    bucket: str
    key: str
    """Key without slashes at its ends; empty: the whole bucket."""
    region: str = ""
    """The cluster's region. The CLI finds a bucket in another region by itself."""

    @classmethod
    def parse(cls, address: str, region: str = "") -> Prefix:
        """Parse the address s3://BUCKET/PREFIX.

        Raises DatasetError for another form, and for a prefix with *, ? or [.
        """
        found = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", address, flags=re.DOTALL)
        if not found:
            raise DatasetError(
                f"{address!r}: must be s3://BUCKET/PREFIX, where BUCKET has 3 to 63 lowercase letters, digits, dots "
                "and hyphens"
            )
        key = (found[2] or "").strip("/")
        if set(key) & set("*?["):
            raise DatasetError(
                f"{address!r}: the AWS CLI treats *, ? and [ as patterns; use a shorter prefix without them"
            )
        return cls(bucket=found[1], key=key, region=region)

    def __str__(self) -> str:
        """Return the prefix's address, s3://BUCKET/PREFIX."""
        return f"s3://{self.bucket}/{self.key}".rstrip("/")

    @property
    def folder(self) -> str:
        """Return the beginning of all keys below the prefix: the key and a slash, or "" for the whole bucket."""
        return f"{self.key}/" if self.key else ""

    def list_words(self, prefix: str) -> list[str]:
        """Build the CLI's arguments to list the objects whose keys begin with `prefix`.

        In JSON, the CLI reads every key literally. As an argument, `-x` would be a flag, and file://x a file to read.
        """
        asked = json.dumps({"Bucket": self.bucket, "Prefix": prefix})
        return ["s3api", "list-objects-v2", "--cli-input-json", asked, "--output", "json"]

    def fetch_words(self, directory: Path, entries: Sequence[Entry], single: bool = False) -> list[str]:
        """Build the CLI's arguments to fetch these files into a directory.

        `single`: the prefix is the key of the only file.
        """
        if single:
            return ["s3", "cp", str(self), str(directory / entries[0].path), *QUIET]
        patterns = (f"--include={literal(entry.path)}" for entry in entries)
        address = f"s3://{self.bucket}/{self.folder}"
        return ["s3", "cp", address, str(directory), "--recursive", *QUIET, "--exclude", "*", *patterns]


def literal(path: str) -> str:
    """Return a pattern for the CLI that matches only this path."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def parse_listing(text: str, prefix: Prefix) -> tuple[Entry, ...]:
    """Return the objects in the CLI's listing, with paths relative to the prefix. Folder markers are left out.

    `text` is "" if there are no objects. Raises DatasetError for malformed output, and ManifestError for a key that
    could be outside of its directory.
    """
    if not text.strip():
        return ()
    try:
        contents = json.loads(text).get("Contents") or ()
        found = [(str(each["Key"]), int(each["Size"]), str(each.get("ETag", "")).strip('"')) for each in contents]
    except (ValueError, KeyError, TypeError, AttributeError):
        advice = "repeat the command; if it fails again, check the AWS CLI on the node"
        raise DatasetError(f"the AWS CLI printed an invalid list of {prefix}: {text[:200]!r}; {advice}") from None
    entries = []
    for key, size, etag in found:
        if key == prefix.key:
            entries.append(Entry(path=key.rpartition("/")[2], size=size, etag=etag))
        elif key.startswith(prefix.folder) and not key.endswith("/"):
            entries.append(Entry(path=key.removeprefix(prefix.folder), size=size, etag=etag))
    return tuple(entries)


def explain(prefix: Prefix, stderr: str, status: int) -> DatasetError:
    """Return the error to raise for a failed call of the CLI: AccessDeniedError, DiskFullError or DatasetError.

    `stderr` is the CLI's output, and `status` its exit status.
    """
    last = "\n".join(line for line in stderr.strip().splitlines()[-3:] if line.strip())
    if "kms" in stderr.lower() and "denied" in stderr.lower():
        return DatasetError(
            f"the nodes may not decrypt {prefix}: allow their roles kms:Decrypt in the policy of its key\n{last}"
        )
    if "Unable to locate credentials" in stderr:
        return AccessDeniedError(
            f"cannot read {prefix} without AWS credentials; ranks have those of their worker's role only if it booted "
            f"while cdk.json named a bucket\n{last}"
        )
    if re.search(r"AccessDenied|Forbidden|\b403\b", stderr):
        return AccessDeniedError(
            f"the nodes may not read {prefix}: their roles lack s3:ListBucket on the bucket {prefix.bucket}, "
            f"or s3:GetObject on its objects\n{last}"
        )
    if "No space left" in stderr:
        return DiskFullError(last)
    return DatasetError(f"the AWS CLI failed for {prefix} (exit status {status})\n{last}")


def listing(prefix: Prefix) -> tuple[Entry, ...]:
    """List the objects under a prefix, or the one object with that key, as entries with paths relative to the prefix.

    Raises DatasetError if there is no object or the CLI fails.
    """
    for wanted in dict.fromkeys((prefix.folder, prefix.key)):
        with _running(prefix, prefix.list_words(wanted)) as process:
            text = process.communicate()[0].decode("utf-8")
        entries = parse_listing(text, prefix)
        if wanted == prefix.key:
            entries = tuple(entry for entry in entries if not prefix.key or entry.path == prefix.key.rpartition("/")[2])
        if entries:
            return entries
    raise DatasetError(f"there is no object at {prefix}; check the names of the bucket and the prefix")


def is_single(prefix: Prefix, entries: Sequence[Entry]) -> bool:
    """Return whether a prefix is the key of one object rather than a folder. `entries` is its listing."""
    return len(entries) == 1 and bool(prefix.key) and entries[0].path == prefix.key.rpartition("/")[2]


def batches(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Divide files into batches for one call of the CLI each, of at most MAX_AT_ONCE files and MAX_BYTES_AT_ONCE bytes.

    A single file may be larger. Few files are divided into smaller batches, but not below FEWEST_AT_ONCE files.
    """
    most = min(MAX_AT_ONCE, max(FEWEST_AT_ONCE, len(entries) // 50))
    batch: list[Entry] = []
    for entry in entries:
        if batch and (len(batch) >= most or sum(e.size for e in batch) + entry.size > MAX_BYTES_AT_ONCE):
            yield batch
            batch = []
        batch.append(entry)
    if batch:
        yield batch


def fetch(
    prefix: Prefix, dataset: StagedDataset, entries: Sequence[Entry], *, single: bool, at: Callable[[int], None]
) -> Iterator[Entry]:
    """Fetch files into a data set; yield the entry of each, with its hash, when it is stored. Raises DatasetError.

    `single`: the prefix is the key of the only file. `at` is called with the number of bytes in flight.
    """
    for batch in batches(entries):
        directory = dataset.partial / f"fetch-{unique_token()}"
        directory.mkdir(parents=True)
        try:
            with _running(prefix, prefix.fetch_words(directory, batch, single)) as process:
                while True:
                    try:
                        process.communicate(timeout=POLL_S)
                        break
                    except subprocess.TimeoutExpired:
                        at(_bytes_in(directory))
            for entry in batch:
                yield dataclasses.replace(entry, sha256=dataset.adopt(entry, directory / entry.path))
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _bytes_in(directory: Path) -> int:
    return sum(_size(Path(parent) / name) for parent, _, names in os.walk(directory) for name in names)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0  # It has just been renamed.


@contextlib.contextmanager
def _running(prefix: Prefix, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the CLI with these words during a block; yield its process, and check its exit status after the block.

    Raises DatasetError if the CLI failed.
    """
    try:
        with running(aws_command(*words, region=prefix.region, in_background=True)) as process:
            yield process
    except AwsCliError as error:
        if error.status is None:
            raise DatasetError(error.stderr) from None
        raise explain(prefix, error.stderr, error.status) from None


def fetch_to_disk(
    prefix: Prefix, dataset: StagedDataset, part: Callable[[Sequence[Entry]], Sequence[Entry]], emit: Emit
) -> None:
    """Fetch this node's part of a bucket's objects to its own disk, except objects that are already there.

    Removes files of an earlier staging that are not in this part. The data set is complete then. `part` returns this
    node's part of all entries. Emits the progress and a summary, with the digest of all objects (`listing`). Raises
    DatasetError.
    """
    listed = listing(prefix)
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
    """Fetch this node's part of a pending data set, `entries`, to the shared file system. The master then finishes it.

    Emits the progress, and the number of files and of fetched bytes. `single`: the prefix may be the key of the only
    object. Raises DatasetError.
    """
    came = _fetch_missing(prefix, dataset, entries, single, emit)
    emit({"done": {"files": len(entries), "came_bytes": came}})


def _fetch_missing(prefix: Prefix, dataset: StagedDataset, entries: Sequence[Entry], single: bool, emit: Emit) -> int:
    """Fetch the files that are missing, damaged or have no known hash; return their total bytes.

    Emits the progress, and writes fetched files to this node's journal. `single`: the prefix may be the key of the only
    object. Raises DatasetError.
    """
    progress, wanted = ProgressMeter(emit, entries), []
    for entry, is_missing in dataset.verify(entries):
        if is_missing or not entry.sha256:
            wanted.append(entry)
        else:
            progress.add(entry)
    is_one = single and is_single(prefix, entries)
    with open(_journal(dataset), "a", encoding="ascii", opener=no_follow) as journal:
        for entry in fetch(prefix, dataset, wanted, single=is_one, at=progress.in_flight):
            progress.add(entry)
            journal.write(entry.to_line() + "\n")
            journal.flush()
    progress.end()
    return sum(entry.size for entry in wanted)


def _journal(dataset: StagedDataset) -> Path:
    """Return the path of this node's journal of fetched files. An interrupted fetch continues from it."""
    return dataset.root / f".{dataset.name}.fetched-{os.uname().nodename}"


def _journals(dataset: StagedDataset) -> list[Path]:
    return sorted(dataset.root.glob(f".{dataset.name}.fetched-*"))


def remove_journals(dataset: StagedDataset) -> None:
    """Remove the journals of all nodes for a data set."""
    for file in _journals(dataset):
        file.unlink(missing_ok=True)


def known_hashes(dataset: StagedDataset) -> dict[tuple[str, int, str], Entry]:
    """Return entries with hashes for objects that were fetched before, by path, size and ETag.

    They come from the last complete manifest and from the nodes' journals. Invalid lines of journals are skipped.
    """
    found = list(dataset.last_entries())
    for file in _journals(dataset):
        for line in file.read_text(encoding="ascii", errors="replace").split("\n"):
            with contextlib.suppress(ValueError):  # The last line may be truncated.
                found.append(Entry.from_document(json.loads(line)))
    return {(entry.path, entry.size, entry.etag): entry for entry in found if entry.sha256 and entry.etag}


def with_hashes(dataset: StagedDataset, manifest: Manifest) -> Iterator[Entry]:
    """Yield a manifest's entries with their hashes. Raises IncompleteDataError for a file that no node has fetched."""
    seen = known_hashes(dataset)
    for entry in manifest.entries:
        found = entry if entry.sha256 else seen.get((entry.path, entry.size, entry.etag))
        if found is None:
            raise IncompleteDataError(f"no node downloaded {entry.path!r}")
        yield found
