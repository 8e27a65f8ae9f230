"""Receive a tree or send a directory. The master's Python runs this file with `-c` before anything is pushed.

Standard library only. `receive SHA256 DIR...` reads a tar from standard input. `send DIR EXCLUDE...` writes one to
standard output.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

MAX_HEADER = 1 << 20
"""Maximum size of a header of further attributes or of a long name, because tarfile reads it into memory as a whole."""
PACKAGES = ("agent", "payload")
_HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, *tarfile.GNU_TYPES)


class Entry(tarfile.TarInfo):
    """Header of a tar entry. Rejects invalid sizes, and extended headers larger than MAX_HEADER."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Entry:
        """Read the header of a tar entry. Raises ReadError for an invalid or too large size.

        tarfile stops at a ReadError. It would take its other errors for the end of the archive.
        """
        entry = super().frombuf(buf, encoding, errors)
        if entry.size < 0 or (entry.type in _HEADERS and entry.size > MAX_HEADER):
            raise tarfile.ReadError(f"the archive is damaged: an entry has a header of {entry.size} bytes")
        return entry


class EntryError(tarfile.TarError):
    """Report a tar entry that is not a plain file below its directory."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!a} is not a plain file below its directory")


def is_path_below(name: str) -> bool:
    """Return whether a file with this name stays below the directory where it is unpacked."""
    return "\0" not in name and not any(part in ("", ".", "..") for part in name.split("/"))


def is_link_below(entry: tarfile.TarInfo) -> bool:
    """Return whether a tar entry is a symbolic link whose target stays in the top-level folder of the entry's name."""
    top, slash, _ = entry.name.partition("/")
    target = os.path.normpath(Path(entry.name).parent / entry.linkname)
    return bool(slash) and entry.issym() and "\0" not in target and (target == top or target.startswith(f"{top}/"))


def entries(archive: tarfile.TarFile, *, links: bool = False) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield each file and directory with its content, None for a directory. Raises EntryError for any other entry.

    Also raises EntryError for a path that leads out of the directory. With `links`, symbolic links whose target is in
    the same top-level folder are yielded too, with None. Other links are rejected, because they could lead out of a new
    directory. Sparse files are rejected, because they may be far larger than the tar. tarfile's `filter="data"` needs
    Python 3.11.4, which nodes may not have.
    """
    for entry in archive:
        archive.members = []  # type: ignore[attr-defined]  # it would keep each entry for as long as it reads
        plain = entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not entry.issparse()
        source = archive.extractfile(entry) if plain else None
        is_link = links and is_link_below(entry)
        if not is_path_below(entry.name) or not (source or entry.isdir() or is_link):
            raise EntryError(entry.name)
        yield entry, source


def unpack(archive: tarfile.TarFile, directory: Path, *, links: bool = False) -> int:
    """Unpack plain files and directories below `directory`. Return the number of files. Existing files are overwritten.

    `links` allows symbolic links. They are created last, so that no file is written through one. Files keep their
    execute bits, and only their owner may write them. Raises EntryError, TarError and OSError.
    """
    files = 0
    later: list[tuple[Path, str]] = []
    for entry, source in entries(archive, links=links):
        target = directory / entry.name
        if entry.issym():
            later.append((target, entry.linkname))
            continue
        if source is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
        target.chmod(entry.mode & 0o755 | 0o600)
        files += 1
    for target, linkname in later:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(linkname)
    return files


def receive(sha256: str, *directories: str) -> int:
    """Unpack the tar on standard input to each of the directories that does not exist, if the tar's SHA-256 matches.

    The packages in it are then compiled in the background. Return the exit status: 0, or 1 after printing an error.
    """
    data = sys.stdin.buffer.read()
    if hashlib.sha256(data).hexdigest() != sha256:
        print(
            f"the upload is damaged: the SHA-256 of the {len(data)} received bytes differs from that of the sent bytes",
            file=sys.stderr,
        )
        return 1
    status = max(unpack_as(Path(directory), data) for directory in directories)
    if status == 0:
        compile_packages(directories)
    return status


def compile_packages(directories: Sequence[str]) -> None:
    """Start to compile the packages `agent` and `payload` in these directories to byte code, in the background.

    Ranks cannot write to the directories, so they would compile the modules at each start.
    """
    packages = [str(path) for each in directories for name in PACKAGES if (path := Path(each, name)).is_dir()]
    if packages:
        null = subprocess.DEVNULL
        words = ("nice", "-n", "19", sys.executable, "-m", "compileall", "-qq", *packages)
        with contextlib.suppress(OSError):  # the upload is complete without it
            subprocess.Popen(words, stdin=null, stdout=null, stderr=null, start_new_session=True)


def unpack_as(target: Path, data: bytes) -> int:
    """Unpack a tar, given as bytes, to a new directory, atomically. Does nothing if the directory exists.

    Return the exit status: 0, or 1 after printing an error.
    """
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    try:
        if target.is_dir():
            return 0
        partial.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            unpack(archive, partial, links=True)
        os.sync()
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # another push of the same tree was first
                raise
    except (OSError, tarfile.TarError) as error:
        print(f"{target}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return 0


def send(directory: str, *excluded: str) -> int:
    """Write a directory's plain files to standard output as a tar, without the top-level entries named in `excluded`.

    Return the exit status: 0, 4 if there is no such directory, or 1 for another error. Errors are printed.
    """
    root = Path(directory)
    if not root.is_dir():
        print(f"no directory {directory}", file=sys.stderr)
        return 4
    try:
        with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
            pack(archive, root, excluded)
    except RecursionError:
        print(f"{directory} has too many nested folders: pack them into one file in your program", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename or directory}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def is_half_written(name: str) -> bool:
    """Return whether a run uses this name for an incomplete file: `.partial-x` or `.x.partial`. `x.partial` belongs to
    the user.
    """
    return name.startswith(".partial-") or (name.startswith(".") and name.endswith(".partial"))


def pack(archive: tarfile.TarFile, root: Path, excluded: Sequence[str] = ()) -> None:
    """Add the plain files below `root` to an archive, without the top-level entries named in `excluded`.

    Incomplete files are left out, and files that disappear in the meantime, as old checkpoints do.
    """
    for parent, directories, names in os.walk(root):
        here = Path(parent)
        directories[:] = [
            name
            for name in sorted(directories)
            if not is_half_written(name) and not (here == root and name in excluded)
        ]
        for name in sorted(names):
            path = here / name
            if is_half_written(name) or (here == root and name in excluded):
                continue
            try:
                if not stat.S_ISREG(path.lstat().st_mode):
                    continue
                with path.open("rb") as file:
                    archive.addfile(archive.gettarinfo(arcname=str(path.relative_to(root)), fileobj=file), file)
            except FileNotFoundError:
                continue


if __name__ == "__main__":
    COMMANDS: dict[str, Callable[..., int]] = {"receive": receive, "send": send}
    sys.exit(COMMANDS[sys.argv[1]](*sys.argv[2:]))
