"""The files on the laptop to stage, and their hashes."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from agent.staging.manifest import NAME_RULE, Entry, Manifest, ManifestError, check_name, sha256_of
from cluster.errors import DeepcdkError, UsageError
from cluster.polling import in_background
from cluster.terminal.paths import is_directory, is_file, resolved

READERS: Final = 4
BATCH: Final = 16
"""Number of files that a reader takes at a time. Handing over one small file takes longer than reading it."""
MAX_PATHS: Final = 5
"""Maximum number of paths in an error. The others are counted."""
S3: Final = "s3://"

ProgressCallback = Callable[[int, int], None]
"""Called with the number of files and bytes done."""


class UnsupportedFilesError(DeepcdkError, ValueError):
    """Report files that cannot be staged: symbolic links unless followed, sockets, pipes, devices."""


def parse_name(name: str, source: str) -> str:
    """Return the name of a data set: the given one, else the last part of its source. Raises UsageError if it is
    invalid.
    """
    last = source.rstrip("/").rpartition("/")[2] if source.startswith(S3) else resolved(source).name
    try:
        return check_name(name or last)
    except ManifestError:
        given = "" if name else "the last part of SOURCE is not a valid name; give --name NAME, which "
        raise UsageError("--name", name or last, f"{given}must be {NAME_RULE}") from None


def is_bucket(source: str) -> bool:
    """Return whether a source is in S3, as s3://BUCKET/PREFIX. Raises UsageError for an invalid address."""
    if not source.startswith(S3):
        return False
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^*?\[]*)?", source, flags=re.DOTALL):
        raise UsageError("SOURCE", source, "must be s3://BUCKET/PREFIX, without the characters *, ? and [")
    return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A directory or file on the laptop, and the files in it to stage."""

    root: Path
    """The directory; for a single file, the directory that contains it."""
    files: tuple[tuple[str, int], ...]
    """Path within `root` and size of each file, sorted by path."""

    @property
    def size(self) -> int:
        """Return the total size of the files, bytes."""
        return sum(size for _, size in self.files)

    def manifest(self, report: ProgressCallback) -> Manifest:
        """Read all files, and return a manifest with the hash of each. `report` is called with the progress.

        A file's size is the one that was read, which may differ from that in `files`. Raises DeepcdkError for an
        unreadable file.
        """
        done = [0, 0]
        entries = []
        paths = [path for path, _ in self.files]
        batches = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
        with ThreadPoolExecutor(max_workers=READERS) as pool:
            try:
                for batch in pool.map(lambda batch: [self._entry(path) for path in batch], batches):
                    entries += batch
                    done = [len(entries), done[1] + sum(entry.size for entry in batch)]
                    report(*done)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return Manifest.of(entries, os.fsencode(self.root).decode("utf-8", errors="replace"))

    def _entry(self, path: str) -> Entry:
        """Hash one file. Raises DeepcdkError if it cannot be read."""
        try:
            with open(f"{self.root}/{path}", "rb", buffering=0) as file:  # noqa: PTH123  # thousands of them
                digest, size = sha256_of(file)
        except OSError as error:
            raise DeepcdkError(
                f"a file cannot be read: {error.strerror}",
                where=ascii(str(self.root / path)),
                remedy="make it readable, or move it out of the source; nothing was sent",
            ) from None
        return Entry(path=path, size=size, sha256=digest)


class BackgroundManifest:
    """Hash a source's files in the background, from its creation on. Leaving the `with` stops it.

    `report` is called in the background thread.
    """

    def __init__(self, source: Source, report: ProgressCallback) -> None:
        self._stopped = threading.Event()

        def check_and_report(files: int, size: int) -> None:
            if self._stopped.is_set():
                raise InterruptedError("hashing was stopped: the manifest is no longer needed")
            report(files, size)

        self._future = in_background(lambda: source.manifest(check_and_report))

    def __enter__(self) -> BackgroundManifest:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def result(self) -> Manifest:
        """Wait until all files are hashed, and return the manifest. Raises the errors of `Source.manifest`."""
        return self._future.result()


def survey(source: str, *, follow_links: bool) -> Source:
    """List the files to stage: all files below a directory, including hidden ones, or a single file.

    `source` may start with ~. Raises UsageError if it does not exist or contains no file, DeepcdkError for a directory
    that cannot be read, or UnsupportedFilesError for sockets, pipes, devices and symbolic links. With `follow_links`,
    only links that have no target or form a loop are rejected.
    """
    root = resolved(source)
    if is_file(root):
        return Source(root=root.parent, files=((root.name, root.stat().st_size),))
    if not is_directory(root):
        raise UsageError(
            "SOURCE", source, "is neither a directory nor a file here; give a directory, a file, or s3://BUCKET/PREFIX"
        )
    links: list[str] = []
    special: list[str] = []
    files = sorted(_walk(root, "", follow_links, links, special, ()))
    if follow_links:
        _check_none("symbolic links without a target or in a loop", links, "correct or remove these links")
    else:
        _check_none("symbolic links", links, "give --follow-links to stage their targets, or remove the links")
    _check_none("sockets, pipes or devices", special, "remove them; only plain files can be staged")
    if not files:
        raise UsageError("SOURCE", source, "contains no file to stage; check the path")
    return Source(root=root, files=tuple(files))


def _check_none(what: str, paths: list[str], remedy: str) -> None:
    if paths:
        shown = ", ".join(ascii(path) for path in sorted(paths)[:MAX_PATHS])
        more = f" and {len(paths) - MAX_PATHS:,} more" if len(paths) > MAX_PATHS else ""
        raise UnsupportedFilesError(f"SOURCE contains {what}: {shown}{more}", remedy=remedy)


def _walk(
    root: Path, below: str, follow: bool, links: list[str], special: list[str], above: tuple[tuple[int, int], ...]
) -> Iterator[tuple[str, int]]:
    """Yield the files below `root / below` with their sizes. Raises DeepcdkError for an unreadable directory.

    `follow` includes the targets of links. Links that are not followed, broken or in a loop are added to `links`, and
    entries that are neither files nor directories to `special`. `above` are the device and inode of each directory
    above, to detect loops of links.
    """
    here = root / below
    try:
        state = here.stat()
        if (state.st_dev, state.st_ino) in above:
            links.append(below)  # a loop of links
            return
        with os.scandir(here) as found:
            for entry in found:
                path = f"{below}/{entry.name}" if below else entry.name
                if entry.is_symlink() and not (follow and (root / path).exists()):
                    links.append(path)
                elif entry.is_dir():
                    yield from _walk(root, path, follow, links, special, (*above, (state.st_dev, state.st_ino)))
                elif stat.S_ISREG(entry.stat().st_mode):
                    yield path, entry.stat().st_size
                else:
                    special.append(path)
    except OSError as error:
        raise DeepcdkError(
            f"a directory cannot be read: {error.strerror}",
            where=ascii(str(here)),
            remedy="make it readable, or move it out of the source; nothing was sent",
        ) from None
