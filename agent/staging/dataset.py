"""One data set in one directory: what is meant to be there, what is, and how a file gets in, whole or not at all.

Beside the directory NAME lie `NAME.manifest`, which lists it once it is whole; `NAME.manifest.new`, which lists what it
is to become, and shows that it is not yet whole; and `.NAME.partial`, which holds files on their way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from agent.files.lock import file_lock
from agent.parallel import each
from agent.staging.dataset_files import (
    DamagedError,
    FullError,
    ShelfError,
    explain,
    fresh_token,
    thread_token,
    write_whole,
)
from agent.staging.manifest import BLOCK, SUFFIX, Entry, Manifest, ManifestError, check_name, is_as_listed, sha256_of

__all__ = ["DamagedError", "FullError", "Shelf", "ShelfError", "explain", "fresh_token"]

SPARE: Final = 64 << 20
"""Bytes that must stay free beside the data, or a full root volume takes the node with it."""


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

    @functools.cached_property
    def _files_text(self) -> str:
        return str(self.directory)

    @functools.cached_property
    def _partial_text(self) -> str:
        return str(self.partial)

    def place(self, entry: Entry) -> str:
        """Return where a file lies, as text: thousands of paths are built quicker so."""
        return f"{self._files_text}/{entry.path}"

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
        self._drop_partial()
        self.partial.mkdir(parents=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        _write(self.coming_file, wanted)
        for gone in sorted(theirs - ours):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                (self.directory / gone).unlink()
            self._prune((self.directory / gone).parent)
        there = frozenset(self._files())
        self.check_room(wanted.entries, there)
        return len(there - ours)

    def _prune(self, folder: Path) -> None:
        """Remove a directory that has become empty, and those above it."""
        while folder != self.directory:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _files(self) -> Iterator[str]:
        root = str(self.directory)
        for parent, _, names in os.walk(root):
            below = parent[len(root) + 1 :]
            yield from (f"{below}/{name}" for name in names) if below else names

    def check_room(self, entries: Iterable[Entry], there: frozenset[str]) -> None:
        """Raise FullError where what these files still need is not free; only those `there` are looked at."""
        missing = 0
        for entry in entries:
            is_there = entry.path in there and self._size(entry) == entry.size
            missing += 0 if is_there else entry.size
        state = os.statvfs(self.root)
        free = state.f_bavail * state.f_frsize
        if missing and free < missing + SPARE:
            raise FullError(
                f"{self.directory} needs {missing:,} bytes more and {SPARE:,} to spare, and {free:,} are free"
            )

    def look_anew(self, entries: Iterable[Entry] = ()) -> None:
        """Have NFS ask for the state of these files' directories, as it does when one is opened.

        Else a name that was not there stays away for a while.
        """
        for parent in {str(self.root), *(os.path.dirname(self.place(entry)) for entry in entries)}:  # noqa: PTH120
            with contextlib.suppress(OSError):
                os.close(os.open(parent, os.O_RDONLY | os.O_DIRECTORY))

    def missing(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, bool]]:
        """Read what is there of these files; yield each, in any order, and whether it is missing or has other bytes."""
        listed = list(entries)
        self.look_anew(listed)
        yield from each(lambda entry: (entry, not is_as_listed(self.place(entry), entry)), listed)

    def _size(self, entry: Entry) -> int:
        """Return a file's size, -1 where it is not there."""
        try:
            return os.lstat(self.place(entry)).st_size
        except OSError:
            return -1

    def put(self, entry: Entry, source: IO[bytes], token: str = "") -> str:
        """Copy exactly so many bytes of `source` in; return their SHA-256.

        The file appears once all of it is there, has the right hash, if one is listed, and reads back as it was
        written; until then another of its name stays. Raises DamagedError for a source of other bytes and for a disk
        that gives back other ones, FullError for a full disk.
        """
        digest, left = hashlib.sha256(), entry.size

        def blocks() -> Iterator[bytes]:
            nonlocal left
            while left:
                block = source.read(min(BLOCK, left))
                if not block:
                    raise DamagedError(f"{entry.path!r} ended {left:,} bytes early")
                digest.update(block)
                left -= len(block)
                yield block
            if entry.sha256 and digest.hexdigest() != entry.sha256:
                raise DamagedError(f"{entry.path!r} has other bytes than its manifest lists")

        self._write(entry, blocks(), token)
        return digest.hexdigest()

    def put_bytes(self, entry: Entry, data: bytes, *, compared: bool = False) -> None:
        """Put a file that is in memory, and was compared with its hash already or not; otherwise as `put`."""
        if not compared and (len(data) != entry.size or hashlib.sha256(data).hexdigest() != entry.sha256):
            raise DamagedError(f"{entry.path!r} has other bytes than its manifest lists")
        self._write(entry, (data,) if data else ())

    def _write(self, entry: Entry, blocks: Iterable[bytes], token: str = "") -> None:
        write_whole(f"{self._partial_text}/{token or thread_token()}", self.place(entry), blocks)

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

    def settle(self) -> None:
        """Say that all that was to come is there, by whoever has read or written each file of it since `begin`."""
        try:
            self.coming_file.replace(self.manifest_file)
        except OSError as error:
            raise explain(error, self.coming_file) from error
        self._drop_partial()

    def finish(self, manifest: Manifest) -> None:
        """Say that all is there. Raises ShelfError where that is not so."""
        for entry in manifest.entries:
            if self._size(entry) != entry.size:
                raise ShelfError(f"{self.path(entry)} is not there, or not whole")
        _write(self.manifest_file, manifest)
        self.coming_file.unlink(missing_ok=True)
        self._drop_partial()

    def _drop_partial(self) -> None:
        try:
            self.partial.rmdir()  # It is empty, or not there, but for an interruption or a pack.
        except FileNotFoundError:
            return
        except OSError:
            import shutil  # It brings every compression that there is.

            shutil.rmtree(self.partial, ignore_errors=True)


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
