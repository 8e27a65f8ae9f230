"""The errors of staging. The laptop chooses its advice by `kind`."""

from __future__ import annotations

import errno
from pathlib import Path


class DatasetError(RuntimeError):
    """Report a data set that is missing or cannot be written."""

    kind = ""


class BusyDatasetError(DatasetError):
    """Report a data set that another command is already staging."""

    kind = "busy"


class IncompleteDataError(DatasetError):
    """Report data that did not arrive completely. Complete files are kept, so repeating the command continues."""

    kind = "broken off"


class DamagedFileError(DatasetError):
    """Report a file with other content than its manifest lists."""

    kind = "damaged"


class CorruptingDiskError(DamagedFileError):
    """Report a disk that reads back different bytes than were written. The message names the remedy."""

    kind = ""


class DiskFullError(DatasetError):
    """Report a full disk."""

    kind = "full"


def dataset_error(error: OSError, path: Path | str) -> DatasetError:
    """Return the DatasetError for a system error at `path`: DiskFullError if the disk or quota is full."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{path}: {error.strerror}")
    return DatasetError(f"{path}: {error.strerror or error}")
