"""Find the names of a data set's classes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from agent.errors import unreadable
from payload.data.dataset import DataError

LABELS_FILE: Final = "labels.txt"
"""File in the data directory with one class name per line, in the order of the labels."""
_DIGITS: Final = tuple("0123456789")
NAMES: Final = {
    "digits": _DIGITS,
    "japanese-vowels": tuple(f"speaker {number}" for number in range(1, 10)),
    "mnist": _DIGITS,
    "fashion-mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
}
"""Class names as published with the data sets."""


def class_names(dataset: str, classes: int, *directories: str | Path | None) -> tuple[str, ...]:
    """Return a name for each class, in the order of the labels, from the first directory with a labels.txt.

    Names beyond the first `classes` are dropped. Without such a file, the result has the published names if there are
    `classes` of them, otherwise "0", "1" and so on. `directories`: None and addresses of buckets are skipped. Raises
    DataError if the file cannot be read or has too few names.
    """
    for directory in directories:
        path = Path(directory or "") / LABELS_FILE
        if directory and "://" not in str(directory) and path.exists():
            return _read(path, classes)
    known = NAMES.get(dataset, ())
    return known if len(known) == classes else tuple(str(number) for number in range(classes))


def _read(path: Path, classes: int) -> tuple[str, ...]:
    try:
        names = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        why = f"cannot be read: {unreadable(error)}; it must be a readable text file in UTF-8, with one name per line"
        raise DataError(f"{path}: {why}") from error
    if len(names) < classes:
        raise DataError(
            f"{path}: {len(names)} names for {classes} classes; the file must have one name per line for each class"
        )
    return names[:classes]  # the data may be a subset without images of the last classes
