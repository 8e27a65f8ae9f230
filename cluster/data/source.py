"""What lies on the laptop and is to be staged: files, by rule, and their hashes."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from agent.staging.manifest import NAME_RULE, Entry, Manifest, ManifestError, check_name, sha256_of
from cluster.errors import DeepcdkError, UsageError
from cluster.terminal.paths import is_directory, is_file, resolved

READERS: Final = 4
BATCH: Final = 16
"""Files that one reader takes at once: a small one takes less time than to be handed over."""
NAMED: Final = 5
"""Paths that an error names; the rest are counted."""
S3: Final = "s3://"

Tick = Callable[[int, int], None]
"""Takes how many files and bytes are done."""


class RefusedFilesError(DeepcdkError, ValueError):
    """Report what can be staged by no rule: symbolic links without leave, sockets, pipes, devices."""


def parse_name(name: str, source: str) -> str:
    """Return the name of a data set: the one given, else the last part of its source. Raises UsageError."""
    last = source.rstrip("/").rpartition("/")[2] if source.startswith(S3) else resolved(source).name
    try:
        return check_name(name or last)
    except ManifestError:
        raise UsageError("--name", name or last, f"must be {NAME_RULE}") from None


def is_bucket(source: str) -> bool:
    """Tell whether a source is in S3. Raises UsageError for an address that cannot be."""
    if not source.startswith(S3):
        return False
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^*?\[]*)?", source, flags=re.DOTALL):
        raise UsageError("SOURCE", source, "must be s3://BUCKET/PREFIX, without *, ? and [")
    return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Hold a directory of the laptop, or one file of it, and what of it is to be staged."""

    root: Path
    files: tuple[tuple[str, int], ...]
    """Path within `root` and size, by path."""

    @property
    def size(self) -> int:
        """Return the bytes of all files together."""
        return sum(size for _, size in self.files)

    def manifest(self, tick: Tick) -> Manifest:
        """Read every file for its hash. Raises DeepcdkError for one that cannot be read."""
        done = [0, 0]
        entries = []
        paths = [path for path, _ in self.files]
        batches = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
        with ThreadPoolExecutor(max_workers=READERS) as pool:
            try:
                for batch in pool.map(lambda batch: [self._entry(path) for path in batch], batches):
                    entries += batch
                    done = [len(entries), done[1] + sum(entry.size for entry in batch)]
                    tick(*done)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return Manifest.of(entries, os.fsencode(self.root).decode("utf-8", errors="replace"))

    def _entry(self, path: str) -> Entry:
        try:
            with open(f"{self.root}/{path}", "rb", buffering=0) as file:  # noqa: PTH123  # thousands of them
                digest, size = sha256_of(file)
        except OSError as error:
            raise DeepcdkError(
                f"a file cannot be read: {error.strerror}",
                where=ascii(str(self.root / path)),
                remedy="mend it; nothing was sent",
            ) from None
        return Entry(path=path, size=size, sha256=digest)


class Reading:
    """Read a source's files in the background. Leaving its `with` ends that."""

    def __init__(self, source: Source, tick: Tick) -> None:
        self._over = threading.Event()
        self._result: Future[Manifest] = Future()

        def at(files: int, size: int) -> None:
            if self._over.is_set():
                raise InterruptedError("nobody wants to know any more")
            tick(files, size)

        def read() -> None:
            try:
                self._result.set_result(source.manifest(at))
            except BaseException as error:
                self._result.set_exception(error)

        threading.Thread(target=read, daemon=True).start()

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def result(self) -> Manifest:
        """Return the manifest once all is read. Raises as `Source.manifest`."""
        return self._result.result()


def survey(source: str, *, follow_links: bool) -> Source:
    """List the files of a directory, hidden ones as well, or take one file.

    Symbolic links are refused, or followed, by choice; sockets, pipes and devices are refused. Raises UsageError and
    RefusedFilesError before anything is sent.
    """
    root = resolved(source)
    if is_file(root):
        return Source(root=root.parent, files=((root.name, root.stat().st_size),))
    if not is_directory(root):
        raise UsageError("SOURCE", source, "is neither a directory, nor a file, nor s3://BUCKET/PREFIX")
    links: list[str] = []
    odd: list[str] = []
    files = sorted(_walk(root, "", follow_links, links, odd, ()))
    _refuse("symbolic links", links, "say --follow-links to stage what they lead to, or take them away")
    _refuse("neither files nor directories", odd, "take them away: only plain files are data")
    if not files:
        raise UsageError("SOURCE", source, "holds no file")
    return Source(root=root, files=tuple(files))


def _refuse(what: str, paths: list[str], remedy: str) -> None:
    if paths:
        shown = ", ".join(ascii(path) for path in sorted(paths)[:NAMED])
        more = f" and {len(paths) - NAMED:,} more" if len(paths) > NAMED else ""
        raise RefusedFilesError(f"{what}: {shown}{more}", remedy=remedy)


def _walk(
    root: Path, below: str, follow: bool, links: list[str], odd: list[str], above: tuple[tuple[int, int], ...]
) -> Iterator[tuple[str, int]]:
    """Yield files with their sizes; put aside links, and what is neither file nor directory."""
    here = root / below
    try:
        state = here.stat()
        if (state.st_dev, state.st_ino) in above:
            links.append(below)  # It leads into itself.
            return
        with os.scandir(here) as found:
            for entry in found:
                path = f"{below}/{entry.name}" if below else entry.name
                if entry.is_symlink() and not (follow and (root / path).exists()):
                    links.append(path)
                elif entry.is_dir():
                    yield from _walk(root, path, follow, links, odd, (*above, (state.st_dev, state.st_ino)))
                elif stat.S_ISREG(entry.stat().st_mode):
                    yield path, entry.stat().st_size
                else:
                    odd.append(path)
    except OSError as error:
        raise DeepcdkError(
            f"a directory cannot be read: {error.strerror}", where=ascii(str(here)), remedy="mend it; nothing was sent"
        ) from None
