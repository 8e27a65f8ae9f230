"""Paths that a user gives: any text is accepted, and checking it never raises."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(text: str) -> Path:
    """Return the path with `~` expanded; an unknown user's stays as it is, as in a shell."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  # pathlib raises for an unknown user


def resolved(text: str) -> Path:
    """Return the path with `~` expanded, absolute and without symbolic links, except those in a circle."""
    return Path(os.path.realpath(expanded(text)))  # pathlib raises for a circle


def is_file(path: Path) -> bool:
    """Return whether the file exists; False for a name that is too long."""
    return os.path.isfile(path)  # noqa: PTH113  # pathlib raises for such a name


def is_directory(path: Path) -> bool:
    """Return whether the directory exists; False for a name that is too long."""
    return os.path.isdir(path)  # noqa: PTH112  # pathlib raises for such a name
