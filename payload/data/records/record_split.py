"""A data set split in record files, with one or several resolutions."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agent.environment.custom_op import check_installed
from payload.data.dataset import DataError, View
from payload.data.records.index import RecordIndex, open_index, record_files
from payload.data.records.tfrecord import FOOTER, HEADER, RecordError, read_record

TRAINING: Final = ("train", "training")
TEST: Final = ("validation", "val", "test")
"""Possible names of a split's files."""
WINDOW_FILES: Final = 16
"""Number of files to shuffle together. A step reads from at most two such windows."""
ORIGINAL: Final = "original"
"""Directory of images with their original size."""
MARGIN: Final = 7 / 8
"""Fraction of a test image's shorter side to use: 224 of 256, as is usual for ImageNet."""
CHANNELS: Final = 3


@dataclasses.dataclass(kw_only=True)
class RecordSplit:
    """A data set split in record files, with an index of its examples for each resolution."""

    name: str
    """Description for error messages, for example "training images of imagenet"."""
    sets: tuple[RecordIndex, ...]
    """The index of each resolution, from the smallest images to the largest. All have the same examples."""
    sides: tuple[int, ...]
    """Shorter side of the images in each set, pixels. 0 is the original size, and comes last."""
    labels: npt.NDArray[np.int32]
    """Class of each example, 0 to classes - 1."""
    classes: int
    skip: bool = False
    """Skip and count damaged records instead of raising an error."""
    cache: str = "auto"
    """Whether decoded test images stay in memory: auto (if they fit into a quarter of it), test (always), none."""
    damaged: set[int] = dataclasses.field(default_factory=set)
    """Positions of examples that were found to be damaged. They are skipped from then on."""
    kept: dict[object, list[Any]] = dataclasses.field(default_factory=dict)
    """Decoded test batches, keyed by view and shares. Only the most recent key is kept."""

    @property
    def examples(self) -> int:
        """Return the number of records."""
        return len(self.labels)

    @property
    def channels(self) -> int:
        """Return 3. Gray images get three equal channels."""
        return CHANNELS

    @property
    def size(self) -> tuple[int, int] | None:
        """Return None, because the images differ in size."""
        return None

    @property
    def damage(self) -> tuple[str, ...]:
        """Describe the damaged files and records that were skipped when the split was opened."""
        return tuple(line for records in self.sets for line in records.damage)

    def digest(self) -> bytes:
        """Return the SHA-256 of the file names and sizes, and of the positions, labels and sizes of all records."""
        digest = hashlib.sha256(f"{self.sides} {self.classes}".encode())
        for records in self.sets:
            digest.update(repr((records.files, records.sizes)).encode())
            digest.update(np.ascontiguousarray(records.table).data)
        return digest.digest()

    def order(self, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Return all positions for one epoch: files are shuffled, then the records of each window of files."""
        random = np.random.default_rng([seed, epoch])
        files = self.sets[0].table["file"]
        windows = random.permutation(int(files.max()) + 1)[files] // WINDOW_FILES
        return np.lexsort((random.permutation(self.examples), windows))

    def pick(self, positions: npt.NDArray[np.int64]) -> RecordSplit:
        """Return a split with only these examples, in the order of the files."""
        chosen = np.sort(positions)
        sets = tuple(dataclasses.replace(records, table=records.table[chosen]) for records in self.sets)
        return dataclasses.replace(self, sets=sets, labels=self.labels[chosen], damaged=set(), kept={})

    def records_for(self, view: View) -> RecordIndex:
        """Return the index of the smallest resolution that needs no enlarging for a view, or else of the largest."""
        for records, side in zip(self.sets, self.sides, strict=True):
            if not side or side * MARGIN >= min(view.size):
                return records
        return self.sets[-1]


def open_records(
    directory: Path, names: Sequence[str], *, what: str, first_label: int | None, skip: bool, cache: str
) -> tuple[RecordSplit, int]:
    """Open one split of record files. Return the split, and the number of the first label in the files.

    The files are in `directory` itself, or in its subdirectories `original` and 160, 352 and so on, named after the
    shorter side of their images. `names`: possible names of the split's files. `what`: the split's name for messages.
    Labels begin at `first_label`. If it is None, they begin at 1 if no record has label 0, as in the usual ImageNet
    files. `skip`: skip damaged records. `cache`: whether decoded test images stay in memory, see `RecordSplit`. Raises
    DataError if files are missing or damaged, or if the subdirectories contain different records.
    """
    if not directory.is_dir():
        raise DataError(f"{directory}: no such directory; set --data-dir to the directory of the record files")
    places = _resolutions(directory) or {0: directory}
    sets = [open_index(place, names, skip=skip) for place in places.values()]
    first, *others = sets
    for other in others:
        if not np.array_equal(first.table["label"], other.table["label"]):
            rule = "both must contain the same examples in the same order; make both again from the same images"
            raise DataError(f"{first.directory} and {other.directory} have different records: {rule}")
    if not len(first.table):
        raise DataError(f"{first.directory}: no record of the {what} can be read; copy the files again")
    found = first.table["label"]
    begin = (1 if found.min() >= 1 else 0) if first_label is None else first_label
    labels = (found - begin).astype(np.int32)
    if labels.min() < 0:
        raise DataError(
            f"{first.directory}: the smallest label of the {what} is {found.min()}, but the training labels begin at "
            f"{begin}; make the files of both again"
        )
    split = RecordSplit(
        name=what,
        sets=tuple(sets),
        sides=tuple(places),
        labels=labels,
        classes=int(labels.max()) + 1,
        skip=skip,
        cache=cache,
    )
    return split, begin


def open_record_splits(
    directory: Path, *, name: str, classes: int, skip: bool, cache: str, with_test: bool = True
) -> tuple[RecordSplit, RecordSplit | None]:
    """Open the record files of the training and test images.

    Without `with_test`, the test images are None if their files are missing. `classes`: number of classes; 0: one more
    than the largest training label. `skip`: skip damaged records. `cache`: whether decoded test images stay in memory,
    see `RecordSplit`. Raises DataError, or CustomOpError if the custom op for resizing is not installed.
    """
    check_installed()
    train, begin = open_records(
        directory, TRAINING, what=f"training images of {name}", first_label=None, skip=skip, cache=cache
    )
    train.classes = classes or train.classes
    if not _has(directory, TEST):
        if with_test:
            raise DataError(
                f"{directory}: no record files {TEST[0]}-00000-of-NNNNN; copy the files of the test images there, or "
                "hold back training images with --validation-fraction"
            )
        return _checked(train), None
    test, _ = open_records(directory, TEST, what=f"test images of {name}", first_label=begin, skip=skip, cache=cache)
    test.classes = train.classes
    return _checked(train), _checked(test)


def _has(directory: Path, names: Sequence[str]) -> bool:
    return any(record_files(place, names)[0] for place in (_resolutions(directory) or {0: directory}).values())


def _checked(split: RecordSplit) -> RecordSplit:
    if split.labels.max() >= split.classes:
        found = f"{split.sets[0].directory}: the {split.name} have {split.labels.max() + 1} classes"
        raise DataError(
            f"{found}, but must have at most {split.classes}; use training and test files of the same data set, or set "
            "--classes"
        )
    return split


def _resolutions(directory: Path) -> dict[int, Path]:
    """Map the shorter side of each resolution to its directory. The original size (0) comes last."""
    found = {int(path.name): path for path in directory.iterdir() if path.name.isdecimal() and path.is_dir()}
    places = dict(sorted(found.items()))
    if (directory / ORIGINAL).is_dir():
        places[0] = directory / ORIGINAL
    return places


NOTHING: Final = b""
"""Placeholder for a damaged image that is skipped."""


@dataclasses.dataclass(kw_only=True)
class RecordReader:
    """Read encoded images from one resolution of a split. Several threads use a reader at once."""

    split: RecordSplit
    records: RecordIndex
    error: RecordError | None = None
    """An error that must terminate the run. It is kept here because TensorFlow does not pass exceptions on."""
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def read(self, positions: npt.NDArray[np.int64]) -> list[bytes]:
        """Return the encoded images at these positions, or b"" for a damaged image if the split skips them.

        Skipped images are marked as by `leave_out`. If the split does not skip damaged records, raises RecordError,
        which names file and record, and also stores it in `error`.
        """
        rows = self.records.table[positions]
        images = [NOTHING] * len(positions)
        for number in np.unique(rows["file"]):
            self._read_file(int(number), positions, rows, np.flatnonzero(rows["file"] == number), images)
        return images

    def _read_file(
        self,
        number: int,
        positions: npt.NDArray[np.int64],
        rows: npt.NDArray[Any],
        slots: npt.NDArray[np.intp],
        images: list[bytes],
    ) -> None:
        """Read the images of file `number` into `images`, at `slots`. `rows`: index rows of all `positions`.

        All reads are announced first, so that a slow disk fetches ahead.
        """
        path = self.records.directory / self.records.files[number]
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            self._handle(
                RecordError(
                    path, None, f"cannot be opened: {error.strerror}; make it readable, or copy the file again"
                ),
                positions[slots],
            )
            return
        try:
            columns = ("offset", "length", "start", "size")
            wanted = [(int(slot), *(int(rows[slot][column]) for column in columns)) for slot in slots]
            for _, offset, length, _, _ in wanted:
                os.posix_fadvise(descriptor, offset, HEADER + length + FOOTER, os.POSIX_FADV_WILLNEED)
            for slot, offset, length, start, size in wanted:
                try:
                    images[slot] = read_record(descriptor, path, offset, length)[start : start + size]
                except RecordError as error:
                    self._handle(error, positions[slot : slot + 1])
        finally:
            os.close(descriptor)

    def _handle(self, error: RecordError, positions: npt.NDArray[np.int64]) -> None:
        if not self.split.skip:
            self.error = error
            raise error
        self.leave_out(positions, str(error))

    def leave_out(self, positions: npt.NDArray[np.int64], why: str) -> None:
        """Mark examples as damaged. Print the reason `why` to standard error unless all were marked before."""
        with self._lock:
            fresh = {int(position) for position in positions} - self.split.damaged
            self.split.damaged |= fresh
        if fresh:
            print(f"payload.data: skipped: {why}", file=sys.stderr, flush=True)

    def fault(self, position: int, why: str) -> RecordError:
        """Return a RecordError for the record at this position."""
        row = self.records.table[position]
        return RecordError(self.records.directory / self.records.files[int(row["file"])], int(row["offset"]), why)
