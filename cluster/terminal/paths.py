"""Paths of this machine, as a user gives them: any text is one, and none makes a question about it fail."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(text: str) -> Path:
    """Return the path that is meant: `~` is a home; a user's that there is not stays as it is, as in a shell."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  # pathlib raises for a user that there is not


def resolved(text: str) -> Path:
    """Return the path that is meant, absolute and without symbolic links; those that lead in a circle stay."""
    return Path(os.path.realpath(expanded(text)))  # pathlib raises for a circle


def is_file(path: Path) -> bool:
    """Tell whether a file is there; a name that is too long for one names none."""
    return os.path.isfile(path)  # noqa: PTH113  # pathlib raises for such a name


def is_directory(path: Path) -> bool:
    """Tell whether a directory is there; a name that is too long for one names none."""
    return os.path.isdir(path)  # noqa: PTH112  # pathlib raises for such a name
