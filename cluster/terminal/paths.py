"""Paths given by the user. Any text is accepted, and checking a path never raises."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(text: str) -> Path:
    """Expand `~` in a path. The home of an unknown user is not expanded, as in a shell."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  # pathlib raises for an unknown user


def resolved(text: str) -> Path:
    """Return the absolute path with `~` expanded and symbolic links resolved. Links in a loop are kept."""
    return Path(os.path.realpath(expanded(text)))  # pathlib raises for a loop of links


def is_file(path: Path) -> bool:
    """Return whether a path is a file or a link to one; False for a name that is too long."""
    return os.path.isfile(path)  # noqa: PTH113  # pathlib raises for such a name


def is_directory(path: Path) -> bool:
    """Return whether a path is a directory or a link to one; False for a name that is too long."""
    return os.path.isdir(path)  # noqa: PTH112  # pathlib raises for such a name
