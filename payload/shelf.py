"""One data set in one directory: what is meant to be there, what is, and how a file gets in, whole or not at all.

Beside the directory NAME lie `NAME.manifest`, which lists it once it is whole; `NAME.manifest.new`, which lists what it
is to become, and shows that it is not yet whole; and `.NAME.partial`, which holds files on their way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import itertools
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

from payload.file_lock import file_lock
from payload.manifest import BLOCK, SUFFIX, Entry, Manifest, ManifestError, check_name, is_as_listed, sha256_of

READERS: Final = 8
"""Files read or written at once: hashing lets go of Python's lock, and a shared file system wants many requests."""
SPARE: Final = 64 << 20
"""Bytes that must stay free beside the data, or a full root volume takes the node with it."""


class ShelfError(RuntimeError):
    """Report data that cannot be put or found there."""


class DamagedError(ShelfError):
    """Report a file whose bytes are not those that its manifest lists."""


class FullError(ShelfError):
    """Report a disk without room."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shelf:
    """Name a data set and the directory in which it lies, with others."""

    root: Path
    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def directory(self) -> Path:
        """Return where its files lie."""
        return self.root / self.name

    @property
    def manifest_file(self) -> Path:
        """Return the file that lists it once it is whole."""
        return self.root / f"{self.name}{SUFFIX}"

    @property
    def coming_file(self) -> Path:
        """Return the file that lists what it is to become."""
        return self.root / f"{self.name}{SUFFIX}.new"

    @property
    def partial(self) -> Path:
        """Return the directory of files on their way, on the same file system."""
        return self.root / f".{self.name}.partial"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the data set for one process at a time; wait for another one's end."""
        with file_lock(self.root / f".{self.name}.lock"):
            yield

    def path(self, entry: Entry) -> Path:
        """Return where a file lies."""
        return self.directory / entry.path

    def manifest(self) -> Manifest:
        """Return what lies there. Raises ShelfError unless it is whole."""
        if self.coming_file.exists():
            raise ShelfError(f"{self.directory} is not whole yet: its staging was interrupted; repeat it")
        try:
            return _read(self.manifest_file)
        except FileNotFoundError:
            raise ShelfError(f"{self.directory} has no manifest: no data set was staged there") from None

    def coming(self) -> Manifest:
        """Return what is to be there."""
        try:
            return _read(self.coming_file)
        except FileNotFoundError:
            raise ShelfError(f"nothing is being staged to {self.directory}: it was finished, or never begun") from None

    def listed(self) -> Manifest:
        """Return what is to be there, or what is, once it is whole."""
        return self.coming() if self.coming_file.exists() else self.manifest()

    def begin(self, wanted: Manifest) -> int:
        """Say what is to be there; remove what an earlier staging put there and this one does not.

        Return how many other files lie there, which stay. Raises FullError where the disk has too little room.
        """
        ours = set(wanted.by_path())
        theirs: set[str] = set()
        for file in (self.manifest_file, self.coming_file):
            with contextlib.suppress(FileNotFoundError, ManifestError):
                theirs |= set(_read(file).by_path())
        shutil.rmtree(self.partial, ignore_errors=True)
        self.partial.mkdir(parents=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        _write(self.coming_file, wanted)
        for gone in sorted(theirs - ours):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                (self.directory / gone).unlink()
            self._prune((self.directory / gone).parent)
        self.check_room(wanted.entries)
        return sum(path not in ours for path in self._files())

    def _prune(self, folder: Path) -> None:
        """Remove a directory that has become empty, and those above it."""
        while folder != self.directory:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _files(self) -> Iterator[str]:
        for parent, _, names in os.walk(self.directory):
            for name in names:
                yield str((Path(parent) / name).relative_to(self.directory))

    def check_room(self, entries: Iterable[Entry]) -> None:
        """Raise FullError where what these files still need is not free."""
        missing = 0
        for entry in entries:
            missing += entry.size if _size(self.path(entry)) != entry.size else 0
        free = shutil.disk_usage(self.root).free
        if missing and free < missing + SPARE:
            raise FullError(
                f"{self.directory} needs {missing:,} bytes more and {SPARE:,} to spare, and {free:,} are free"
            )

    def missing(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, bool]]:
        """Read all that is there of these files; yield each with whether it is missing or has other bytes, in order."""
        listed = list(entries)
        for parent in {self.path(entry).parent for entry in listed}:
            # NFS asks for a directory's state anew when it is opened; else a name that was not there stays away.
            with contextlib.suppress(OSError):
                os.close(os.open(parent, os.O_RDONLY | os.O_DIRECTORY))
        with ThreadPoolExecutor(max_workers=READERS) as pool:
            try:
                for entry, right in zip(
                    listed, pool.map(lambda entry: is_as_listed(self.path(entry), entry), listed), strict=True
                ):
                    yield entry, not right
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def put(self, entry: Entry, source: IO[bytes], token: str = "") -> str:
        """Copy exactly so many bytes of `source` in; return their SHA-256.

        The file appears once all of it is there and has the right hash, if one is listed; until then another of its
        name stays. Raises DamagedError for a source of other bytes, FullError for a full disk.
        """
        temporary = self.partial / (token or fresh_token())
        target = self.path(entry)
        digest, left = hashlib.sha256(), entry.size
        try:
            with temporary.open("wb") as file:
                while left:
                    block = source.read(min(BLOCK, left))
                    if not block:
                        raise DamagedError(f"{entry.path!r} ended {left:,} bytes early")
                    digest.update(block)
                    file.write(block)
                    left -= len(block)
            found = digest.hexdigest()
            if entry.sha256 and found != entry.sha256:
                raise DamagedError(f"{entry.path!r} has other bytes than its manifest lists")
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.chmod(0o644)
            temporary.replace(target)
        except OSError as error:
            raise explain(error, target) from error
        finally:
            temporary.unlink(missing_ok=True)
        return found

    def adopt(self, entry: Entry, file: Path) -> str:
        """Take in a file that lies within `partial`; return its SHA-256. Raises DamagedError for other bytes."""
        target = self.path(entry)
        try:
            with file.open("rb") as opened:
                found, size = sha256_of(opened)
            if size != entry.size or (entry.sha256 and found != entry.sha256):
                raise DamagedError(f"{entry.path!r} came with {size:,} bytes instead of {entry.size:,}, or other ones")
            target.parent.mkdir(parents=True, exist_ok=True)
            file.chmod(0o644)
            file.replace(target)
        except FileNotFoundError:
            raise ShelfError(f"{entry.path!r} did not arrive") from None
        except OSError as error:
            raise explain(error, target) from error
        return found

    def finish(self, manifest: Manifest) -> None:
        """Say that all is there. Raises ShelfError where that is not so."""
        for entry in manifest.entries:
            if _size(self.path(entry)) != entry.size:
                raise ShelfError(f"{self.path(entry)} is not there, or not whole")
        _write(self.manifest_file, manifest)
        self.coming_file.unlink(missing_ok=True)
        shutil.rmtree(self.partial, ignore_errors=True)


def explain(error: OSError, path: Path) -> ShelfError:
    """Return what an error of the system means for whoever stages."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FullError(f"{path}: {error.strerror}")
    return ShelfError(f"{path}: {error.strerror or error}")


def _size(path: Path) -> int:
    """Return a file's size, -1 where it is not there."""
    try:
        return path.lstat().st_size
    except OSError:
        return -1


_TOKENS = itertools.count()


def fresh_token() -> str:
    """Return a name that no other thread or process on any node has."""
    return f"{os.uname().nodename}-{os.getpid()}-{threading.get_ident()}-{next(_TOKENS)}"


def _read(file: Path) -> Manifest:
    try:
        return Manifest.from_text(file.read_text(encoding="ascii"))
    except ManifestError as error:
        raise ManifestError(f"{file}: {error}") from None


def _write(file: Path, manifest: Manifest) -> None:
    temporary = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        temporary.write_text(manifest.to_text(), encoding="ascii")
        temporary.replace(file)
    except OSError as error:
        raise explain(error, file) from error
    finally:
        temporary.unlink(missing_ok=True)
