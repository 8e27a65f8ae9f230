"""Read `.deepcdkignore`, which names files of a program that are not uploaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.errors import DeepcdkError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE: Final = ".deepcdkignore"


class UploadError(DeepcdkError, OSError):
    """Report a directory with files that cannot be listed or read."""


def unreadable(path: Path, error: OSError) -> UploadError:
    """Return an UploadError for a path that cannot be read or has disappeared."""
    if isinstance(error, FileNotFoundError):
        what, remedy = f"{path} disappeared while it was read", "stop the program that changes the directory"
    else:
        what, remedy = f"cannot read {path}: {error.strerror or error}", "make it readable"
    return UploadError(what, remedy=f"{remedy}, or name the path in {IGNORE_FILE}; nothing was uploaded")


def read_rules(file: Path) -> GitIgnoreSpec | None:
    """Read the rules in a `.deepcdkignore`; None if it does not exist.

    Raises UploadError if it cannot be read or has an invalid line.
    """
    from pathspec import GitIgnoreSpec  # import late: most tasks upload no program

    try:
        text = file.read_bytes().decode("utf-8-sig", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"cannot read {file}: {error.strerror or error}"
        raise UploadError(what, remedy="make it readable; nothing was uploaded") from None
    try:
        return GitIgnoreSpec.from_lines(line.rstrip("\r") for line in text.split("\n"))
    except ValueError as error:
        what = f"{file} has an invalid line: {error}"
        raise UploadError(what, remedy="correct the line; the syntax is that of .gitignore") from None
