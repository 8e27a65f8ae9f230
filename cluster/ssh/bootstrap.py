"""What the laptop has the master's Python run with `-c` before anything is pushed: receive a tree, send a directory.

Standard library only. `receive DIR SHA256`, a tar on standard input; `send DIR EXCLUDE...`, a tar on standard output.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path


class EntryError(tarfile.TarError):
    """Report an entry of a tar that is no plain file below its directory; `name` is what it is called."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!a} is not a plain file below its directory")


def is_path_below(name: str) -> bool:
    """Return whether a file of this name lies below the directory that it is put in.

    The rule is that of `agent.staging.manifest.check_path`, which this module cannot import: it is sent as text.
    """
    return "\0" not in name and not any(part in ("", ".", "..") for part in name.split("/"))


def unpack(archive: tarfile.TarFile, directory: Path) -> int:
    """Unpack plain files and directories below `directory`; return how many files. Raises EntryError for anything else.

    Where `directory` is new no link can lead out of it, for none is unpacked: neither symbolic nor hard, nor a file
    with holes, of whose size a few bytes tell.

    The library's own `filter="data"` came with Python 3.11.4; nodes may have an older 3.11.
    """
    files = 0
    for entry in archive:
        plain = entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not entry.issparse()
        source = archive.extractfile(entry) if plain else None
        if not is_path_below(entry.name) or not (source or entry.isdir()):
            raise EntryError(entry.name)
        target = directory / entry.name
        if source is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
        target.chmod(entry.mode & 0o755 | 0o600)
        files += 1
    return files


def receive(directory: str, sha256: str) -> int:
    """Unpack the tar on standard input as `directory`, whole or not at all, once its hash is the one that was sent."""
    target = Path(directory)
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    try:
        data = sys.stdin.buffer.read()
        if hashlib.sha256(data).hexdigest() != sha256:
            print(
                f"{len(data)} bytes arrived, and their hash is not the one that was sent: repeat the push",
                file=sys.stderr,
            )
            return 1
        partial.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            unpack(archive, partial)
        os.sync()
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # Somebody else pushed the same tree meanwhile: theirs is as good.
                raise
    except (OSError, tarfile.TarError) as error:
        print(f"{target}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return 0


def send(directory: str, *excluded: str) -> int:
    """Write a directory's files to standard output as a tar, without the top-level entries named in `excluded`."""
    root = Path(directory)
    if not root.is_dir():
        print(f"no directory {directory}", file=sys.stderr)
        return 4
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        pack(archive, root, excluded)
    return 0


def is_half_written(name: str) -> bool:
    """Tell whether a run keeps under such a name what is not whole yet; what a user calls x.partial is the user's."""
    return name.startswith(".partial-") or (name.startswith(".") and name.endswith(".partial"))


def pack(archive: tarfile.TarFile, root: Path, excluded: Sequence[str] = ()) -> None:
    """Pack the plain files below `root`. The run may go on: what is half written is left out, and so is what vanishes.

    Old checkpoints vanish, for instance.
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
