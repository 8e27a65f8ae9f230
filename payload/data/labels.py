"""Names of the classes of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from payload.data.types import DataError

LABELS_FILE: Final = "labels.txt"
"""In the directory of the data: one name a line, in the order of the labels."""
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
"""As published with the data sets."""


def class_names(dataset: str, classes: int, *directories: str | Path | None) -> tuple[str, ...]:
    """Return a name for each class: from the first directory with a labels.txt, else as published, else numbers.

    Raises DataError where the file does not name each class, or cannot be read.
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
        raise DataError(f"{path}: cannot be read: {error}; it must have one name a line") from error
    if len(names) < classes:
        raise DataError(f"{path}: {len(names)} names for {classes} classes; it must have one a line for each class")
    return names[:classes]  # the last ones may have no images in a part of the data
