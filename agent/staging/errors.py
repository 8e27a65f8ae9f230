"""The errors of staging. `kind` is the word by which the laptop chooses what to advise."""

from __future__ import annotations

import errno
from pathlib import Path


class DatasetError(RuntimeError):
    """Report a data set that cannot be written or found."""

    kind = ""


class BusyDatasetError(DatasetError):
    """Report a data set that another command is staging."""

    kind = "busy"


class DamagedFileError(DatasetError):
    """Report a file whose content differs from its manifest."""

    kind = "damaged"


class CorruptingDiskError(DamagedFileError):
    """Report a disk that reads back other bytes than were written."""


class DiskFullError(DatasetError):
    """Report a full disk."""

    kind = "full"


def dataset_error(error: OSError, path: Path | str) -> DatasetError:
    """Return the DatasetError for an error of the system at `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{path}: {error.strerror}")
    return DatasetError(f"{path}: {error.strerror or error}")
