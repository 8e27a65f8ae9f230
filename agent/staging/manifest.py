"""The manifest of a data set: path, size and SHA-256 of each file, stored as JSON lines next to the data.

Standard library only: the laptop writes manifests, and the nodes check their files against them. A path is data and
never reaches a shell. Bytes in it that are not UTF-8 are lone surrogates, as in Python's file functions.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import hashlib
import heapq
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final

from agent.errors import malformed

FORMAT: Final = 1
SUFFIX: Final = ".manifest"
BLOCK: Final = 1 << 20
NAME_RULE: Final = "1 to 100 letters, digits, . _ and -, starting with a letter or digit, not ending in .manifest"


class ManifestError(ValueError):
    """Report a malformed manifest, or a name that could refer to a path outside of its directory."""


def check_name(name: str) -> str:
    """Return `name`, the name of a data set and its directory. Raises ManifestError unless it follows NAME_RULE."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name, flags=re.ASCII) or name.endswith(SUFFIX):
        raise ManifestError(f"name {name!r}: must be {NAME_RULE}")
    return name


def check_path(path: str) -> str:
    """Return `path`, a file's path in its data set. Raises ManifestError if it has NUL or a part "", `.` or `..`."""
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ManifestError(
            f"path {path!r}: must be within the data set's directory, without empty parts, `.` and `..`"
        )
    return path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One file of a data set."""

    path: str
    """Relative path, with `/` between its parts."""
    size: int
    """Bytes."""
    sha256: str = ""
    """64 hexadecimal digits; empty for an object in a bucket that has not been read yet."""
    etag: str = ""
    """S3's tag for the object's content; empty for a file from a laptop."""

    def __post_init__(self) -> None:
        check_path(self.path)
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 0:
            raise ManifestError(f"size of {self.path!r}: {self.size!r} is not a number of bytes")
        if self.sha256 and not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ManifestError(f"sha256 of {self.path!r}: not 64 hexadecimal digits")

    def to_line(self) -> str:
        """Return the entry as JSON on one line, in ASCII, without a newline. Empty fields are left out."""
        fields: dict[str, Any] = {"path": self.path, "size": self.size}
        if self.sha256:
            fields["sha256"] = self.sha256
        if self.etag:
            fields["etag"] = self.etag
        return json.dumps(fields)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Entry:
        """Build the entry from parsed JSON. Raises ManifestError for an unknown field or an invalid value."""
        try:
            return cls(**document)
        except TypeError:
            needed = "an object with path and size, and optionally sha256 and etag"
            raise ManifestError(f"invalid entry: must be {needed}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files of a data set, sorted by path."""

    entries: tuple[Entry, ...]
    source: str = ""
    """Description of where the data came from, for people."""

    def __post_init__(self) -> None:
        seen: set[str] = set()
        folders: set[str] = set()
        for entry in self.entries:
            if entry.path in seen:
                raise ManifestError(f"path {entry.path!r}: listed twice")
            seen.add(entry.path)
            folder = entry.path.rpartition("/")[0]
            while folder and folder not in folders:
                folders.add(folder)
                folder = folder.rpartition("/")[0]
        if both := seen & folders:
            raise ManifestError(
                f"path {min(both)!r}: a file and also a directory of other files, which no disk can store; rename or "
                "delete one of them in the source"
            )

    @classmethod
    def of(cls, entries: Iterable[Entry], source: str = "") -> Manifest:
        """Build the manifest from entries in any order. Raises ManifestError if two entries cannot both exist."""
        return cls(entries=tuple(sorted(entries, key=lambda entry: entry.path)), source=source)

    @property
    def size(self) -> int:
        """Return the total bytes of all files."""
        return sum(entry.size for entry in self.entries)

    @functools.cached_property
    def digest(self) -> str:
        """Return one SHA-256 for the paths, sizes and hashes of all files."""
        listed = json.dumps([[entry.path, entry.size, entry.sha256] for entry in self.entries])
        return hashlib.sha256(listed.encode("ascii")).hexdigest()

    def by_path(self) -> dict[str, Entry]:
        """Return the entries by their paths."""
        return {entry.path: entry for entry in self.entries}

    def to_text(self) -> str:
        """Return the manifest as JSON lines in ASCII: a header with the counts, and a line for each file."""
        head = {"format": FORMAT, "files": len(self.entries), "bytes": self.size, "source": self.source}
        return "".join(f"{line}\n" for line in (json.dumps(head), *(entry.to_line() for entry in self.entries)))

    @classmethod
    def from_text(cls, text: str) -> Manifest:
        """Parse a manifest.

        Raises ManifestError with the number of the first bad line, or if lines are missing or the format is unknown.
        """
        entries: list[Entry] = []
        head: dict[str, Any] = {}
        for number, line in enumerate(text.split("\n")[:-1] if text else [], start=1):
            try:
                document = json.loads(line)
                if number == 1:
                    head = {"format": document["format"], "files": document["files"], "source": document["source"]}
                else:
                    entries.append(Entry.from_document(document))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise ManifestError(f"line {number} of a manifest: {malformed(error)}") from None
        if head and head["format"] != FORMAT:
            raise ManifestError(f"the manifest has the format {head['format']!r}, but this version reads only {FORMAT}")
        if not head or head["files"] != len(entries):
            counted = f"{len(entries)} of {head['files']} files" if head else "it is empty"
            raise ManifestError(f"the manifest is incomplete: {counted}")
        return cls.of(entries, str(head["source"]))


def shard(entries: Iterable[Entry], index: int, count: int) -> tuple[Entry, ...]:
    """Return the files of shard `index`, 0 to `count` - 1, sorted by path. Raises ManifestError for another index.

    Each file is in exactly one shard, and the shards have about the same number of bytes. The order of the entries does
    not matter: the largest file goes first, to the shard with the fewest bytes.
    """
    if not 0 <= index < count:
        raise ManifestError(f"shard {index} of {count}: must be 0 to {count - 1}")
    loads = [(0, number) for number in range(count)]
    chosen = []
    for entry in sorted(entries, key=lambda entry: (-entry.size, entry.path)):
        load, number = heapq.heappop(loads)
        # An empty file counts as one byte. Otherwise all empty files would go to one shard.
        heapq.heappush(loads, (load + entry.size + 1, number))
        if number == index:
            chosen.append(entry)
    return tuple(sorted(chosen, key=lambda entry: entry.path))


def sha256_of(file: IO[bytes]) -> tuple[str, int]:
    """Return the SHA-256 of the rest of a file, and the number of bytes read."""
    digest, size = hashlib.sha256(), 0
    while block := file.read(BLOCK):
        digest.update(block)
        size += len(block)
    return digest.hexdigest(), size


def is_as_listed(path: Path | str, entry: Entry) -> bool:
    """Return whether `path` is a regular file, not a link, with the entry's size and hash; False if it is missing.

    Reads the file. Raises OSError if that fails.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return False
        raise
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_size != entry.size:
            return False
        digest, size = hashlib.sha256(), 0
        while block := os.read(file, BLOCK if entry.size > BLOCK else entry.size + 1):
            digest.update(block)
            size += len(block)
        return (digest.hexdigest(), size) == (entry.sha256, entry.size)
    finally:
        os.close(file)
