"""List the files of a repository with git."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cluster.programs.deepcdkignore import UploadError, unreadable

_NO_REPOSITORY: Final = "not a git repository (or any"
_GIT_PLACES: Final = frozenset(
    f"GIT_{name}"
    for name in ("DIR", "WORK_TREE", "INDEX_FILE", "PREFIX", "COMMON_DIR", "OBJECT_DIRECTORY", "NAMESPACE")
)
"""Variables that git sets in hooks. They would point to another repository."""


class NoGitError(OSError):
    """Report that git is not installed."""


def names(directory: Path, *words: str, stdin: Sequence[str] = ()) -> list[str] | None:
    """Run git in a directory, and return the names that it prints; None outside of a repository.

    `words` are a git command that lists names, such as `ls-files`, and its options. `stdin` are names for its input.
    Raises NoGitError if git is not installed, and UploadError for other errors.
    """
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", *words, "-z"],
            cwd=directory,
            env={**{key: text for key, text in os.environ.items() if key not in _GIT_PLACES}, "LC_ALL": "C"},
            input=os.fsencode("".join(f"{name}\0" for name in stdin)),
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise NoGitError(str(directory)) from None
    except OSError as error:
        raise unreadable(directory, error) from None
    trouble = os.fsdecode(done.stderr).strip()
    if done.returncode != 0 and trouble.startswith(("xcrun:", "xcode-select:")):  # Apple's placeholder for git
        raise NoGitError(str(directory))
    if _NO_REPOSITORY in trouble:
        return None
    if closed := re.search("could not open directory '(.*)': (.*)", trouble):
        raise unreadable(directory / closed[1], PermissionError(0, closed[2]))
    if done.returncode not in ((0, 1) if words[0] == "check-ignore" else (0,)):
        owned = re.search("dubious ownership in repository at '(.*)'", trouble)
        remedy = (
            f"run `git config --global --add safe.directory '{owned[1]}'`"
            if owned
            else f"run `git -C {directory} status` to see the problem"
        )
        line = next(iter(trouble.splitlines()), f"status {done.returncode}")
        raise UploadError(f"git cannot list {directory}: {line}", remedy=f"{remedy}; nothing was uploaded")
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
