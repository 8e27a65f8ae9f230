"""Push trees of code to the shared file system: each content once, verified by its hash, completely or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
import io
import os
import tarfile
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.files.atomic_write import reports_full_disk
from agent.files.safe_read import open_regular
from agent.spec.nodes import MASTERS_TREES, NODE_PYTHON
from cluster.errors import DeepcdkError, RemoteError
from cluster.master_answers import AnswerError
from cluster.ssh import transfer_on_master
from cluster.terminal import progress
from cluster.terminal.status_line import doing

if TYPE_CHECKING:
    from cluster.ssh.master import Master

AGENT: Final = "agent"
LONG_BYTES: Final = 4_000_000
"""An upload of this size takes seconds at 10 Mbit/s, so its progress is shown."""
_LOOK: Final = 'for d; do if test -d "$d"; then echo yes; else echo no; fi; done'
"""A shell starts faster than Python."""
BLOCK_BYTES: Final = 1 << 18
"""Bytes between two reports of an upload's progress."""
UPLOAD_S: Final = 24 * 3600.0
"""Timeout of an upload. The connection's keep-alive detects a dead connection sooner."""
LARGEST_SHOWN: Final = 5


class BrokenPackageError(DeepcdkError, SyntaxError):
    """Report code that cannot run: a syntax error, or a file that cannot be read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
    """A packed tree. The same files result in the same bytes on any machine."""

    archive: bytes
    """An uncompressed tar with its entries below `folder`."""
    files: int
    folder: str
    """`agent`, `payload`, `wheels`, or `program` for a user program."""
    content_bytes: int = 0
    """Total size of its files, without those that `pack` got as bytes."""
    largest: tuple[tuple[int, str], ...] = ()
    """Bytes and name of its largest files, largest first."""

    @property
    def sha256(self) -> str:
        """Return the archive's hash, 64 hexadecimal digits."""
        return hashlib.sha256(self.archive).hexdigest()

    @property
    def name(self) -> str:
        """Return the tree's name on the shared file system: the first 16 digits of its hash."""
        return self.sha256[:16]

    @property
    def masters_directory(self) -> str:
        """Return the directory of the master's own copy of an agent, relative to the login user's home."""
        return f"{MASTERS_TREES}/{self.name}"

    def directories(self, payloads_root: str) -> list[str]:
        """Return the directories for the tree: below `payloads_root` on the shared file system and, for an agent, also
        on the master's own disk.
        """
        shared = f"{payloads_root}/{self.name}"
        return [shared, self.masters_directory] if self.folder == AGENT else [shared]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pushed:
    """A pushed tree, its directory, and how many bytes were uploaded."""

    tree: Tree
    directory: str
    """The tree's directory on the shared file system."""
    uploaded_bytes: int
    """0 if the tree was there already."""

    def __str__(self) -> str:
        """Describe the tree and its upload in one line."""
        uploaded = f"{self.uploaded_bytes:,} bytes uploaded" if self.uploaded_bytes else "unchanged: nothing uploaded"
        return f"{self.tree.folder} {self.tree.name}, {uploaded}"

    def to_document(self) -> dict[str, str | int]:
        """Return the tree and its upload as JSON values: name, directory, uploaded_bytes, files, and bytes of its
        archive.
        """
        return {
            "name": self.tree.name,
            "directory": self.directory,
            "uploaded_bytes": self.uploaded_bytes,
            "files": self.tree.files,
            "bytes": len(self.tree.archive),
        }


def package_files(root: Path) -> list[Path]:
    """List the files below a package's directory, relative to it and sorted.

    Hidden files, links, `__pycache__` and .pyc files are left out.
    """
    found = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
        if not hidden and path.suffix != ".pyc" and path.is_file() and not path.is_symlink():
            found.append(relative)
    return found


def check_syntax(path: Path) -> None:
    """Compile a Python file in memory, without running it. Raises BrokenPackageError with file and line.

    Also raises it for a file that cannot be read. A file with an expression that is too long to compile here is
    accepted.
    """
    try:
        source = path.read_bytes()
        source.decode(tokenize.detect_encoding(io.BytesIO(source).readline)[0])  # compile() skips comments
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, str(path), "exec", dont_inherit=True)
    except (RecursionError, MemoryError):
        return  # a very long expression: the limit depends on the Python version
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise BrokenPackageError(
            f"{path}{line}: {error.msg}", remedy="correct the file; nothing was uploaded"
        ) from None
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}"
        raise BrokenPackageError(what, remedy="make it readable; nothing was uploaded") from None
    except ValueError as error:
        raise BrokenPackageError(f"{path}: {error}", remedy="correct the file; nothing was uploaded") from None


def pack(
    root: Path,
    files: Iterable[Path],
    folder: str,
    beside: Mapping[str, bytes | Path] | None = None,
    *,
    links: Iterable[tuple[Path, str]] = (),
    folders: Iterable[Path] = (),
) -> Tree:
    """Pack files into a tree, with their paths below `folder`. Times, owners and modes do not depend on the machine.

    `files` are relative to `root`. `beside` maps names to further files, given as bytes or by their paths, which are
    stored next to the folder. Those given as bytes do not count in the tree's size. `links` are symbolic links with
    their targets, `folders` empty directories. Raises OSError.
    """
    buffer = io.BytesIO()
    sizes: list[tuple[int, str]] = []

    def entry_of(name: Path, kind: bytes, mode: int) -> tarfile.TarInfo:
        entry = tarfile.TarInfo((Path(folder) / name).as_posix())
        entry.type, entry.mode = kind, mode
        return entry

    with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted((beside or {}).items()):
            entry = tarfile.TarInfo(name)
            entry.mode = 0o644
            with io.BytesIO(data) if isinstance(data, bytes) else data.open("rb") as content:
                entry.size = content.seek(0, os.SEEK_END)
                content.seek(0)
                archive.addfile(entry, content)
            if isinstance(data, Path):
                sizes.append((entry.size, printable(Path(data.name))))
        for relative in files:
            with open_regular(root / relative) as file:
                data, is_program = file.read(), os.fstat(file.fileno()).st_mode & 0o100
            entry = entry_of(relative, tarfile.REGTYPE, 0o755 if is_program else 0o644)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
            sizes.append((len(data), printable(relative)))
        for relative in folders:
            archive.addfile(entry_of(relative, tarfile.DIRTYPE, 0o755))
        for relative, target in links:
            entry = entry_of(relative, tarfile.SYMTYPE, 0o777)
            entry.linkname = target
            archive.addfile(entry)
    return Tree(
        archive=buffer.getvalue(),
        files=len(sizes),
        folder=folder,
        content_bytes=sum(size for size, _ in sizes),
        largest=tuple(heapq.nlargest(LARGEST_SHOWN, sizes)),
    )


def printable(path: Path) -> str:
    """Return a path for messages. With control characters or bytes that are not UTF-8, it is quoted and escaped."""
    return str(path) if str(path).isprintable() else ascii(str(path))


def package_tree(root: Path) -> Tree:
    """Pack a whole package, `agent` or `payload`. Raises BrokenPackageError if it has no files, or if a file cannot be
    read.
    """
    files = package_files(root)
    if not files:
        raise BrokenPackageError(
            f"the package {root.name} is missing at {root}", remedy="restore it with git, or install deepcdk again"
        )
    try:
        return pack(root, files, root.name)
    except OSError as error:
        what = f"{error.filename or root} cannot be read: {error.strerror or error}"
        raise BrokenPackageError(what, remedy="make it readable; nothing was uploaded") from None


def bootstrap_command(*arguments: str) -> list[str]:
    """Return the command that runs `transfer_on_master` with these arguments on a master without deepcdk's files."""
    return [NODE_PYTHON, "-c", Path(transfer_on_master.__file__).read_text(encoding="utf-8"), *arguments]


def find_pushed(master: Master, payloads_root: str, trees: Sequence[Tree]) -> frozenset[str]:
    """Ask the master which trees are in all their directories (`Tree.directories`), and return the names of those.

    One command checks all trees. `payloads_root` is the directory of trees on the shared file system. Raises
    AnswerError, RemoteError or SilenceError.
    """
    directories = [(tree, each) for tree in trees for each in tree.directories(payloads_root)]
    with doing("asking the master for pushed files"):
        asked = ["sh", "-c", _LOOK, "sh", *(directory for _, directory in directories)]
        said = master.check(asked, doing="listing the pushed files").text
    answers = said.split()
    if len(answers) != len(directories) or not {*answers} <= {"yes", "no"}:
        rule = f"must be yes or no, {len(directories)} times"
        raise AnswerError("the question which trees it has", said, rule, where=master.where)
    missing = {tree.name for (tree, _), answer in zip(directories, answers, strict=True) if answer == "no"}
    return frozenset(tree.name for tree in trees) - missing


def push(
    master: Master,
    payloads_root: str,
    tree: Tree,
    tell: Callable[[str], None] | None = None,
    *,
    terminal: bool = False,
    there: frozenset[str] = frozenset(),
) -> Pushed:
    """Upload a tree to its directories (`Tree.directories`), unless it is there. `there` names trees that are known to
    be there.

    `payloads_root` is the directory of trees on the shared file system. `tell` is called with the progress of an upload
    that may take long; on a `terminal` a bar shows the progress. Raises RemoteError, for example if the disk is full,
    and the errors of `find_pushed`.
    """
    directory, *_ = directories = tree.directories(payloads_root)
    found = tree.name in there or tree.name in find_pushed(master, payloads_root, [tree])
    if not found:
        try:
            _upload(master, directories, tree, tell if len(tree.archive) >= LONG_BYTES else None, terminal=terminal)
        except RemoteError as error:
            if reports_full_disk(error.output):
                error.remedy = (
                    f"free space below {payloads_root}: `fab clean` removes unused files, `fab rm` removes a run"
                )
            raise
    return Pushed(tree=tree, directory=directory, uploaded_bytes=0 if found else len(tree.archive))


def _upload(
    master: Master, directories: Sequence[str], tree: Tree, tell: Callable[[str], None] | None, *, terminal: bool
) -> None:
    """Upload a tree to these directories. If `tell` is given, show the progress: with a bar on a `terminal`, else with
    lines.

    Raises RemoteError.
    """
    command, action = bootstrap_command("receive", tree.sha256, *directories), f"pushing the {tree.folder}"
    if tell is None:
        with doing(f"uploading the {tree.folder}"):
            master.check(command, stdin=tree.archive, doing=action)
        return
    with progress.make(terminal=terminal, write=tell) as shown:

        def blocks() -> Iterator[bytes]:
            for at in range(0, len(tree.archive), BLOCK_BYTES):
                yield tree.archive[at : at + BLOCK_BYTES]
                shown.at(tree.files, min(at + BLOCK_BYTES, len(tree.archive)))

        shown.begin("uploading", tree.files, len(tree.archive))
        try:
            for _ in master.blocks(command, feed=blocks(), silence_s=UPLOAD_S):
                pass  # it writes nothing; wait for its end
        except RemoteError as error:
            raise error.reworded(f"{action} failed (status {error.status})") from None
