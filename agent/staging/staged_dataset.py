"""A data set in a directory, with manifests, and files that are written atomically and verified.

The root contains the directory NAME and next to it `NAME.manifest`, which lists the complete data set. While the data
set is incomplete, there is also the pending manifest `NAME.manifest.new`. `.NAME.partial` contains files that are being
written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from agent.files.atomic_write import write_atomically
from agent.files.file_lock import AlreadyLockedError, file_lock
from agent.files.safe_read import is_listed, listed_below, read_listed
from agent.polling import wait_until
from agent.staging.errors import (
    BusyDatasetError,
    DamagedFileError,
    DatasetError,
    DiskFullError,
    IncompleteDataError,
    dataset_error,
)
from agent.staging.manifest import BLOCK, SUFFIX, Entry, Manifest, ManifestError, check_name, is_as_listed, sha256_of
from agent.staging.thread_pool import map_unordered
from agent.staging.verified_write import thread_token, write_verified

SPARE: Final = 64 << 20
"""Bytes that must stay free in addition to the data: a full root volume would make the node fail."""
MAX_MANIFEST_BYTES: Final = 4 << 30
"""Maximum size of a manifest. A line per file has about 100 bytes, so this allows tens of millions of files."""
RESERVE_S: Final = 2.0
"""How long to wait until another command releases a data set. An interrupted command exits within moments."""
RESERVE_POLL_S: Final = 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagedDataset:
    """A data set, given by its name and its root: the directory that contains this and other data sets."""

    root: Path
    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    @functools.cached_property
    def directory(self) -> Path:
        """Return the directory with the data set's files."""
        return self.root / self.name

    @property
    def manifest_file(self) -> Path:
        """Return the path of the complete data set's manifest."""
        return self.root / f"{self.name}{SUFFIX}"

    @property
    def pending_manifest_file(self) -> Path:
        """Return the path of the manifest of the staging in progress."""
        return self.root / f"{self.name}{SUFFIX}.new"

    @functools.cached_property
    def partial(self) -> Path:
        """Return the directory for files that are being written, on the same file system."""
        return self.root / f".{self.name}.partial"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the data set against other processes; wait while another process holds the lock."""
        with file_lock(self.root / f".{self.name}.lock"):
            yield

    @contextlib.contextmanager
    def reserved(self, timeout_s: float = RESERVE_S) -> Iterator[None]:
        """Reserve the data set for one `fab stage-data`, from its first change to its last check.

        If two commands ran at the same time, the second would remove and replace files of the first. The first would
        then list files as complete that the second has not yet sent. This waits while another process has the
        reservation. Raises BusyDatasetError if it still has the reservation after `timeout_s`.
        """
        file, opened = self.root / f".{self.name}.staging", contextlib.ExitStack()

        def lock() -> bool:
            with contextlib.suppress(AlreadyLockedError):
                opened.enter_context(file_lock(file, wait=False))
                return True
            return False

        with opened:
            if not wait_until(lock, timeout_s=timeout_s, poll_s=RESERVE_POLL_S):
                since = time.strftime("%H:%M:%S", time.gmtime(file.stat().st_mtime))
                raise BusyDatasetError(
                    f"another `fab stage-data` has been writing to {self.directory} since {since} UTC"
                )
            os.utime(file)
            yield

    def path_text(self, entry: Entry) -> str:
        """Return the path of a file as text, which is faster than a Path for thousands of files."""
        return f"{self.directory}/{entry.path}"

    def path(self, entry: Entry) -> Path:
        """Return the path of a file."""
        return self.directory / entry.path

    def manifest(self) -> Manifest:
        """Return the manifest of the complete data set.

        Raises DatasetError if it is incomplete or missing, and ManifestError if the manifest is malformed.
        """
        if is_listed(self.pending_manifest_file):
            raise DatasetError(
                f"{self.directory} is incomplete: `fab stage-data` is still running or was interrupted; wait for it or "
                "repeat it"
            )
        try:
            return _read(self.manifest_file)
        except FileNotFoundError:
            raise DatasetError(
                f"{self.directory} has no manifest: no data set was staged to it; stage it with `fab stage-data`"
            ) from None

    def pending(self) -> Manifest:
        """Return the manifest of the staging in progress.

        Raises DatasetError if there is none, and ManifestError if it is malformed.
        """
        try:
            return _read(self.pending_manifest_file)
        except FileNotFoundError:
            raise DatasetError(
                f"no staging to {self.directory} is in progress; start it with `fab stage-data`"
            ) from None

    def listed(self) -> Manifest:
        """Return the pending manifest if there is one, else the complete data set's manifest.

        Raises DatasetError if there is none, and ManifestError if it is malformed.
        """
        return self.pending() if is_listed(self.pending_manifest_file) else self.manifest()

    def last_entries(self) -> tuple[Entry, ...]:
        """Return the entries of the last complete manifest, even if another one is pending.

        Return () if there is no valid one.
        """
        with contextlib.suppress(OSError, ManifestError):
            return _read(self.manifest_file).entries
        return ()

    def begin(self, wanted: Manifest) -> int:
        """Write the pending manifest, and remove files of an earlier staging that `wanted` does not contain.

        Partial files are removed too. Return the number of other files in the directory, which are kept. After these
        changes, raises DiskFullError if there is too little space for the missing files. Raises DatasetError if the
        manifest cannot be written.
        """
        ours = set(wanted.by_path())
        theirs: set[str] = set()
        for file in (self.manifest_file, self.pending_manifest_file):
            with contextlib.suppress(FileNotFoundError, ManifestError):
                theirs |= set(_read(file).by_path())
        self._remove_partial()
        self.partial.mkdir(parents=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        _write(self.pending_manifest_file, wanted)
        for gone in sorted(theirs - ours):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                (self.directory / gone).unlink()
            self._prune((self.directory / gone).parent)
        there = frozenset(self._files())
        missing = sum(
            entry.size for entry in wanted.entries if entry.path not in there or self._size(entry) != entry.size
        )
        state = os.statvfs(self.root)
        free = state.f_bavail * state.f_frsize
        if missing and free < missing + SPARE:
            raise DiskFullError(
                f"{self.directory} needs {missing:,} more bytes and a reserve of {SPARE:,}, but {free:,} are free"
            )
        return len(there - ours)

    def _prune(self, folder: Path) -> None:
        """Remove the directory `folder` and its parents within the data set, as long as they are empty."""
        while folder != self.directory:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _files(self) -> Iterator[str]:
        """Yield the relative paths of all files in the directory."""
        root = str(self.directory)
        for parent, _, names in os.walk(root):
            below = parent[len(root) + 1 :]
            yield from (f"{below}/{name}" for name in names) if below else names

    def existing_paths(self, entries: Iterable[Entry]) -> frozenset[str]:
        """Return the paths of these files that exist, in whatever state."""
        return listed_below(self.directory, (entry.path for entry in entries))

    def verify(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, bool]]:
        """Read these files. Yield each, in any order, with whether it is missing or differs from its entry.

        Raises OSError for a file that cannot be read.
        """
        listed = list(entries)
        there = self.existing_paths(listed)

        def check(entry: Entry) -> tuple[Entry, bool]:
            return entry, entry.path not in there or not is_as_listed(self.path_text(entry), entry)

        yield from map_unordered(check, listed)

    def _size(self, entry: Entry) -> int:
        """Return the size of a file, or -1 if it is missing."""
        try:
            return os.lstat(self.path_text(entry)).st_size
        except OSError:
            return -1

    def put(self, entry: Entry, source: IO[bytes], token: str = "") -> str:
        """Copy `entry.size` bytes from `source` into the file; return their SHA-256.

        The file is replaced atomically after it is complete, reads back as written, and has the hash of `entry`, if
        that is known. `token` is the name of the temporary file; "": one for each thread. Raises DamagedFileError for a
        source with other content, CorruptingDiskError, DiskFullError or another DatasetError.
        """
        digest, left = hashlib.sha256(), entry.size

        def blocks() -> Iterator[bytes]:
            nonlocal left
            while left:
                block = source.read(min(BLOCK, left))
                if not block:
                    break
                digest.update(block)
                left -= len(block)
                yield block
            _compare(entry, entry.size - left, digest.hexdigest())

        self._write(entry, blocks(), token)
        return digest.hexdigest()

    def put_bytes(self, entry: Entry, data: bytes, *, compared: bool = False) -> None:
        """Write a file from memory, like `put`. Raises the errors of `put`.

        With `compared`, `data` is not compared with the entry, because the caller has done this.
        """
        if not compared:
            _compare(entry, len(data), hashlib.sha256(data).hexdigest())
        self._write(entry, (data,) if data else ())

    def _write(self, entry: Entry, blocks: Iterable[bytes], token: str = "") -> None:
        write_verified(f"{self.partial}/{token or thread_token()}", self.path_text(entry), blocks)

    def adopt(self, entry: Entry, file: Path) -> str:
        """Move a file from `partial` into the data set; return its SHA-256.

        Raises DamagedFileError if it differs from `entry`, IncompleteDataError if it is missing, and another
        DatasetError if it cannot be moved.
        """
        target = self.path(entry)
        try:
            with file.open("rb") as opened:
                found, size = sha256_of(opened)
            _compare(entry, size, found)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.chmod(0o644)
            file.replace(target)
        except FileNotFoundError:
            raise IncompleteDataError(f"{entry.path!r} was not downloaded") from None
        except OSError as error:
            raise dataset_error(error, target) from error
        return found

    def commit(self) -> None:
        """Make the pending manifest the current one, and remove partial files. Raises DatasetError if that fails.

        The caller must have verified or written every file since `begin`. This does not check the files.
        """
        try:
            self.pending_manifest_file.replace(self.manifest_file)
        except OSError as error:
            raise dataset_error(error, self.pending_manifest_file) from error
        self._remove_partial()

    def finish(self, manifest: Manifest) -> None:
        """Write the complete data set's manifest, and remove the pending one and partial files.

        Raises IncompleteDataError if a file is missing or has another size. File contents are not read.
        """
        there = self.existing_paths(manifest.entries)
        for entry in manifest.entries:
            if entry.path not in there or self._size(entry) != entry.size:
                raise IncompleteDataError(f"{self.path(entry)} is missing or incomplete")
        _write(self.manifest_file, manifest)
        self.pending_manifest_file.unlink(missing_ok=True)
        self._remove_partial()

    def _remove_partial(self) -> None:
        """Remove the directory of partial files."""
        try:
            self.partial.rmdir()  # Empty or missing, unless a staging was interrupted or has written a pack.
        except FileNotFoundError:
            return
        except OSError:
            import shutil  # Not at the top: it imports all compression modules.

            shutil.rmtree(self.partial, ignore_errors=True)


def _read(file: Path) -> Manifest:
    try:
        return Manifest.from_text(read_listed(file, MAX_MANIFEST_BYTES).decode("ascii"))
    except ManifestError as error:
        raise ManifestError(f"{file}: {error}; `fab stage-data` writes it again") from None


def _write(file: Path, manifest: Manifest) -> None:
    try:
        write_atomically(file, manifest.to_text())
    except OSError as error:
        raise dataset_error(error, file) from error


def _compare(entry: Entry, size: int, sha256: str) -> None:
    """Raise DamagedFileError unless the size and the hash of a content are those of its entry, if that has a hash."""
    if size != entry.size:
        raise DamagedFileError(f"{entry.path!r}: received {size:,} of {entry.size:,} bytes")
    if entry.sha256 and sha256 != entry.sha256:
        raise DamagedFileError(f"{entry.path!r}: the size is right, but the SHA-256 differs from the manifest")
