"""Choose which files of a program's directory are uploaded.

In a git repository: files that git tracks or would track, and empty directories. Elsewhere: all files except caches and
virtual environments. In both cases `.deepcdkignore` excludes more, in the syntax of .gitignore; a line that begins with
`!` includes a file that would be excluded. Private keys and passwords are never uploaded without such a line.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
import stat
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from agent.files.safe_read import read_regular
from cluster.programs import git_files
from cluster.programs.deepcdkignore import IGNORE_FILE, read_rules, unreadable
from cluster.programs.secret_detection import has_secret_name, is_secret
from cluster.ssh.push import printable

CACHES: Final = frozenset(
    (
        *(".git", ".hg", ".svn", ".jj", "__pycache__", "node_modules", ".ipynb_checkpoints", ".DS_Store"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".eggs", ".direnv"),
    )
)
"""Names that are not uploaded unless git tracks them."""
_ENVIRONMENT_MARKS: Final = ("pyvenv.cfg", "conda-meta")
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/v1\n"
_MAX_POINTER_BYTES: Final = 1024
"""Maximum size of a Git LFS pointer (docs/spec.md of git-lfs)."""
_SHOWN: Final = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Upload:
    """The files of a directory that are uploaded, and the names of excluded ones. Paths are relative."""

    root: Path
    files: tuple[Path, ...] = ()
    """Plain files to upload."""
    links: tuple[tuple[Path, str], ...] = ()
    """Symbolic links within the directory to upload, each with its target relative to the link."""
    folders: tuple[Path, ...] = ()
    """Empty directories to create."""
    ignored: tuple[str, ...] = ()
    """Excluded because git ignores them. Names of directories end with a slash."""
    secrets: tuple[str, ...] = ()
    """Excluded because they may contain private keys or passwords."""
    outside: tuple[str, ...] = ()
    """Excluded symbolic links to targets outside of the directory, as `LINK -> TARGET`."""
    special: tuple[str, ...] = ()
    """Excluded sockets, pipes and devices."""
    pointers: tuple[str, ...] = ()
    """Uploaded files that are Git LFS pointers, because their content was never downloaded."""
    without_git: bool = False
    """Whether the directory is in a repository but git is not installed."""

    def notes(self) -> list[str]:
        """Return notes for the user: one for each kind of excluded files, for Git LFS pointers, and for a missing git.

        Caches, virtual environments and files that `.deepcdkignore` excludes are not mentioned.
        """
        lines = []
        if self.secrets:
            lines.append(
                f"not uploaded, because it may contain passwords or keys: {_listed(self.secrets)}. Give a value to "
                f"ranks with --secret NAME or --secret NAME=@FILE. {_way_back(self.secrets)}"
            )
        if self.ignored:
            lines.append(f"not uploaded, because git ignores it: {_listed(self.ignored)}. {_way_back(self.ignored)}")
        if self.outside:
            lines.append(
                f"not uploaded, because the symbolic links lead out of {self.root}: {_listed(self.outside)}. Copy data "
                "to the nodes with `fab stage-data`"
            )
        if self.special:
            lines.append(f"not uploaded: sockets, pipes and devices ({_listed(self.special)})")
        if self.pointers:
            lines.append(
                f"uploaded as Git LFS pointers, without their content: {_listed(self.pointers)}. To download the "
                f"content first: git -C {shlex.quote(str(self.root))} lfs pull"
            )
        if self.without_git:
            lines.append(
                "git is not installed (on a Mac: `xcode-select --install`), so .gitignore has no effect. List files "
                f"that should not be uploaded in {IGNORE_FILE}"
            )
        return lines

    def reason_against(self, file: Path) -> str:
        """Return why a file of the directory is not uploaded, and what to do; "" if it is uploaded.

        `file` is the relative path of an existing file.
        """
        real = Path(os.path.relpath(os.path.realpath(self.root / file), os.path.realpath(self.root)))
        if file in self.files or real in self.files:
            return ""
        for other in self.files:  # on a disk that ignores case, train.py is also found as Train.py
            if str(other).lower() == str(real).lower() and (self.root / other).samefile(self.root / file):
                return f"its name is {other}; on the nodes, upper and lower case differ"
        if real.parts[0] == "..":
            return "it is a symbolic link out of the directory"
        if any(str(real) == name or str(real).startswith(name.rstrip("/") + "/") for name in self.ignored):
            return f"git ignores it; to upload it, add the line !{real} to {IGNORE_FILE}"
        if str(real) in self.secrets:
            return f"it may contain passwords or keys; to upload it, add the line !{real} to {IGNORE_FILE}"
        rules = read_rules(self.root / IGNORE_FILE)
        if rules and rules.check_file(str(real)).include:
            return f"{IGNORE_FILE} excludes it; correct the line that matches it"
        return "it is in a cache or a virtual environment; move it to another directory"


def _way_back(names: Sequence[str]) -> str:
    first = _listed(names[:1])
    return f"To upload {first if names[1:] else 'it'}, add the line !{first} to {IGNORE_FILE}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(printable(Path(name)) + ("/" if name.endswith("/") else "") for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if names[_SHOWN:] else shown


def survey(root: Path) -> Upload:
    """List the files of a directory to upload: in a git repository those that git tracks or would track, else all.

    Caches, virtual environments, and files that may contain passwords or keys are left out. `.deepcdkignore` excludes
    more, or includes files again. Runs git. Raises UploadError if a file, a directory or `.deepcdkignore` cannot be
    read, or if git fails.
    """
    found = _Search(root)
    found.collect("")
    return found.result()


class _Search:
    """State of the search through one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rules = read_rules(root / IGNORE_FILE)
        self.paths: set[str] = set()
        self.folders: set[str] = set()
        self.ignored: set[str] = set()
        self.without_git = False
        self.is_environment = functools.cache(_is_environment)

    def verdict(self, path: str) -> bool | None:
        """Return True if `.deepcdkignore` excludes a path, False if a line with `!` includes it, else None."""
        return self.rules.check_file(path).include if self.rules else None

    def collect(self, below: str) -> None:
        """Add the files and empty directories below a directory, which may be a repository inside of another one.

        In a repository, git lists them. Elsewhere, all are added except caches and virtual environments. Here and in
        other methods, `below` is "" for the root, or a directory's relative path with a slash at its end.
        """
        directory = self.root / below
        is_repository = not below or os.path.lexists(directory / ".git")  # not so: a submodule that is not initialized
        listed = self._git(directory, "ls-files", "-cot", "--exclude-standard") if is_repository else None
        if not listed:  # git lists nothing if the repository ignores the whole directory
            files, empty = self._walk(below)
            self.paths |= files
            self.folders |= empty
            return
        for line in listed:
            state, name = line[:2], below + line[2:]
            if state == "? " and self.verdict(name) is not False and self._is_cached(name):
                continue
            if name.endswith("/") or ((self.root / name).is_dir() and not (self.root / name).is_symlink()):
                self.collect(name.rstrip("/") + "/")  # a submodule, or a repository inside of this one
            else:
                self.paths.add(name)
        self._add_folders(directory, below, self._add_ignored(directory, below))

    def _add_folders(self, directory: Path, below: str, ignored: Collection[str]) -> None:
        """Add the empty directories that git does not ignore. `ignored` are names that need not be searched."""
        untracked = self._git(directory, "ls-files", "-o", "--directory", "--exclude-standard") or []
        empty = [
            name[len(below) :]
            for each in untracked
            if each.endswith("/") and below + each not in ignored and not self._is_cached(below + each)
            if not os.path.lexists(directory / each / ".git")
            for name in self._walk(below + each, ignored)[1]
        ]
        if empty:
            dropped = self._git(directory, "check-ignore", "--stdin", stdin=[f"{name}/" for name in empty]) or []
            self.folders |= {below + name for name in empty if f"{name}/" not in dropped}

    def _add_ignored(self, directory: Path, below: str) -> set[str]:
        """Add the names that git ignores to `ignored`, except caches and names in `.deepcdkignore`. Return all of them.

        Ignored files that a line with `!` in `.deepcdkignore` includes are added to `paths`.
        """
        options = ("ls-files", "-oi", "--exclude-standard")
        names = {below + name for name in self._git(directory, *options, "--directory") or []}
        self.ignored |= {name for name in names if not self._is_cached(name) and self.verdict(name) is None}
        if self.rules and any(pattern.include is False for pattern in self.rules.patterns):
            wanted = {below + name for name in self._git(directory, *options) or []}
            self.paths |= {name for name in wanted if not name.endswith("/") and self.verdict(name) is False}
        return names

    def _walk(self, below: str, ignored: Collection[str] = ()) -> tuple[set[str], set[str]]:
        """Return all files and all empty directories below a directory, or the directory itself if it is empty.

        Git is not used. Caches (including .pyc files), virtual environments, directories that `.deepcdkignore` excludes
        and the names in `ignored` are left out. Raises UploadError for an unreadable directory.
        """
        waiting, files, empty = [below], set[str](), set[str]()
        while waiting:
            name = waiting.pop()
            folders, others = self._entries(name)
            waiting += [folder for folder in folders if folder not in ignored]
            files |= {*others}
            if name and not folders and not others:
                empty.add(name.rstrip("/"))
        return files, empty

    def _entries(self, below: str) -> tuple[list[str], list[str]]:
        """Return the directories (with a slash) and the other entries of a directory, without caches and excluded
        directories.

        Both are empty if a subdirectory has disappeared. Raises UploadError for an unreadable directory.
        """
        folders, others = [], []
        try:
            with os.scandir(self.root / below) as entries:
                for entry in entries:
                    name = below + entry.name
                    if entry.name in CACHES or entry.name.endswith((".pyc", ".pyo")):
                        continue
                    if not entry.is_dir(follow_symlinks=False):
                        others.append(name)
                    elif not self.is_environment(self.root / name) and self.verdict(f"{name}/") is not True:
                        folders.append(f"{name}/")
        except FileNotFoundError:  # it was removed after its parent was read
            if not below:
                raise
        except OSError as error:
            raise unreadable(self.root / below, error) from None
        return folders, others

    def _is_cached(self, name: str) -> bool:
        """Return whether a path is a cache, or is in a cache or a virtual environment."""
        parts = name.rstrip("/").split("/")
        if any(part in CACHES for part in parts) or parts[-1].endswith((".pyc", ".pyo")):
            return True
        return any(self.is_environment(self.root.joinpath(*parts[: n + 1])) for n in range(len(parts)))

    def _git(self, directory: Path, *words: str, stdin: Sequence[str] = ()) -> list[str] | None:
        """Return the names that git lists in a directory, as `git_files.names`; None if git is not installed, which is
        recorded in `without_git` for a repository.
        """
        try:
            return git_files.names(directory, *words, stdin=stdin)
        except git_files.NoGitError:
            self.without_git |= any(os.path.lexists(each / ".git") for each in (directory, *directory.parents))
            return None

    def result(self) -> Upload:
        """Return the found paths, grouped by kind. Files that may contain passwords or keys are in `secrets`.

        Paths that have disappeared, or that `.deepcdkignore` excludes, are left out. Raises UploadError for an
        unreadable file.
        """
        files, links, outside, special, pointers = [], [], [], [], []
        secrets = {name for name in self.ignored if has_secret_name(name)}
        for name in sorted(self.paths):
            path, verdict = self.root / name, self.verdict(name)
            if verdict is True:
                continue
            try:
                state = path.lstat()
                if stat.S_ISREG(state.st_mode):
                    if verdict is None and is_secret(path, name, state.st_size):
                        secrets.add(name)
                    else:
                        files.append(Path(name))
                        if state.st_size <= _MAX_POINTER_BYTES and _is_pointer(path):
                            pointers.append(name)
                elif stat.S_ISLNK(state.st_mode):
                    target = _target_within(self.root, path)
                    if target:
                        links.append((Path(name), target))
                    else:
                        outside.append(f"{name} -> {os.readlink(path)}")  # noqa: PTH115  # the text of the link
                elif not stat.S_ISDIR(state.st_mode):
                    special.append(name)
            except (FileNotFoundError, NotADirectoryError):
                continue  # removed since then, or deleted in the working tree
            except OSError as error:
                raise unreadable(path, error) from None
        return Upload(
            root=self.root,
            files=tuple(sorted(files)),
            links=tuple(sorted(links)),
            folders=tuple(Path(name) for name in sorted(self.folders) if self.verdict(f"{name}/") is not True),
            ignored=tuple(sorted(self.ignored - secrets)),
            secrets=tuple(sorted(secrets)),
            outside=tuple(outside),
            special=tuple(special),
            pointers=tuple(pointers),
            without_git=self.without_git,
        )


def _is_pointer(path: Path) -> bool:
    """Return whether a small file is a Git LFS pointer; False if it cannot be read."""
    try:
        return read_regular(path, _MAX_POINTER_BYTES).startswith(_LFS_POINTER)
    except OSError:  # packing the file reports the error
        return False


def names_left_out(root: Path, names: Iterable[str]) -> list[str]:
    """Return those of `names` that are typical of secrets or that `.deepcdkignore` in `root` excludes.

    Names are paths relative to `root`. A line with `!` in `.deepcdkignore` includes a secret. Only the names decide,
    not the files' contents or git. Raises UploadError if `.deepcdkignore` cannot be read or has an invalid line.
    """
    rules = read_rules(root / IGNORE_FILE)
    verdicts = {name: rules.check_file(name).include if rules else None for name in names}
    return [name for name, out in verdicts.items() if out or (out is None and has_secret_name(name))]


def _is_environment(path: Path) -> bool:
    return any(os.path.lexists(path / mark) for mark in _ENVIRONMENT_MARKS)


def _target_within(root: Path, link: Path) -> str:
    """Return a symbolic link's final target, relative to the link; "" if the target is outside of `root`."""
    top, real = os.path.realpath(root), os.path.realpath(link)
    if real != top and not real.startswith(f"{top}/"):
        return ""
    return os.path.relpath(real, os.path.realpath(link.parent))
