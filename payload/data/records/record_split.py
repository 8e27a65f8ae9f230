"""A split whose images are in record files, of one resolution or of several."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agent.environment.custom_op import check_installed
from payload.data.records.index import RecordIndex, open_index, record_files
from payload.data.records.tfrecord import FOOTER, HEADER, RecordError, read_record
from payload.data.types import DataError, View

TRAINING: Final = ("train", "training")
TEST: Final = ("validation", "val", "test")
"""Names that the files of a split may have."""
WINDOW_FILES: Final = 16
"""Files whose records are shuffled together: a step reads from no more than these, or at its ends twice as many."""
ORIGINAL: Final = "original"
"""Directory of the images that were not resized."""
MARGIN: Final = 7 / 8
"""Fraction of a test image's shorter side that is used: 224 of 256, as is usual for ImageNet."""
CHANNELS: Final = 3


@dataclasses.dataclass(kw_only=True)
class RecordSplit:
    """A split in record files: the index of its examples in each resolution."""

    name: str
    """What it is, for errors: "training images of imagenet"."""
    sets: tuple[RecordIndex, ...]
    """The same examples in each, from the smallest images to the largest."""
    sides: tuple[int, ...]
    """Shorter side of the images of each set, pixels; 0: as they came, the last one."""
    labels: npt.NDArray[np.int32]
    """Class of each example, 0 to classes - 1."""
    classes: int
    skip: bool = False
    """Whether damaged records are left out and counted instead of being an error."""
    cache: str = "auto"
    """Whether decoded test images stay in memory: auto (where they fit into a quarter of it), test, none."""
    damaged: set[int] = dataclasses.field(default_factory=set)
    """Positions of examples that were found damaged and are left out from then on."""
    kept: dict[object, list[Any]] = dataclasses.field(default_factory=dict)
    """Decoded test batches by how they are looked at; one such way at a time."""

    @property
    def examples(self) -> int:
        """Return the number of records."""
        return len(self.labels)

    @property
    def channels(self) -> int:
        """Return 3: grey images are given three equal channels."""
        return CHANNELS

    @property
    def size(self) -> tuple[int, int] | None:
        """Return None: the images have different sizes."""
        return None

    @property
    def damage(self) -> tuple[str, ...]:
        """Return what was left out when the files were opened, in words."""
        return tuple(line for records in self.sets for line in records.damage)

    def digest(self) -> bytes:
        """Return the SHA-256 of all files' names and sizes and of all records' places, labels and sizes."""
        digest = hashlib.sha256(f"{self.sides} {self.classes}".encode())
        for records in self.sets:
            digest.update(repr((records.files, records.sizes)).encode())
            digest.update(np.ascontiguousarray(records.table).data)
        return digest.digest()

    def order(self, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Shuffle the files, then the records of each window of files."""
        random = np.random.default_rng([seed, epoch])
        files = self.sets[0].table["file"]
        windows = random.permutation(int(files.max()) + 1)[files] // WINDOW_FILES
        return np.lexsort((random.permutation(self.examples), windows))

    def pick(self, positions: npt.NDArray[np.int64]) -> RecordSplit:
        """Return a split of these examples alone, in the order of the files."""
        chosen = np.sort(positions)
        sets = tuple(dataclasses.replace(records, table=records.table[chosen]) for records in self.sets)
        return dataclasses.replace(self, sets=sets, labels=self.labels[chosen], damaged=set(), kept={})

    def records_for(self, view: View) -> RecordIndex:
        """Return the smallest images that need not be enlarged for a view, else the largest."""
        for records, side in zip(self.sets, self.sides, strict=True):
            if not side or side * MARGIN >= min(view.size):
                return records
        return self.sets[-1]


def open_records(
    directory: Path, names: Sequence[str], *, what: str, first_label: int | None, skip: bool, cache: str
) -> tuple[RecordSplit, int]:
    """Open one split of record files; return it and the number at which its labels begin.

    The files lie in `directory` itself or, by the shorter side of their images, in its directories 160, 352 and so on,
    and `original`. Labels begin at 1 where no record has 0, as in the usual ImageNet files; `first_label` fixes it.
    Raises DataError, which names file and record.
    """
    if not directory.is_dir():
        raise DataError(f"{directory}: no such directory; give the one that holds the record files as --data-dir")
    places = _resolutions(directory) or {0: directory}
    sets = [open_index(place, names, skip=skip) for place in places.values()]
    first, *others = sets
    for other in others:
        if not np.array_equal(first.table["label"], other.table["label"]):
            rule = "they must hold the same examples in the same order; make both anew"
            raise DataError(f"{first.directory} and {other.directory} have different records: {rule}")
    if not len(first.table):
        raise DataError(f"{first.directory}: no record of the {what} can be read")
    found = first.table["label"]
    begin = (1 if found.min() >= 1 else 0) if first_label is None else first_label
    labels = (found - begin).astype(np.int32)
    if labels.min() < 0:
        raise DataError(f"{first.directory}: label {found.min()} of the {what}; labels must begin at {begin}")
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
    """Open training and test images. Without `with_test` the latter may be missing.

    `classes`: how many there are; 0: one more than the largest label of the training images. Raises DataError, or
    CustomOpError where nothing here could resize them.
    """
    check_installed()
    train, begin = open_records(
        directory, TRAINING, what=f"training images of {name}", first_label=None, skip=skip, cache=cache
    )
    train.classes = classes or train.classes
    if not with_test and not _has(directory, TEST):
        return _checked(train), None
    test, _ = open_records(directory, TEST, what=f"test images of {name}", first_label=begin, skip=skip, cache=cache)
    test.classes = train.classes
    return _checked(train), _checked(test)


def _has(directory: Path, names: Sequence[str]) -> bool:
    return any(record_files(place, names)[0] for place in (_resolutions(directory) or {0: directory}).values())


def _checked(split: RecordSplit) -> RecordSplit:
    if split.labels.max() >= split.classes:
        directory = split.sets[0].directory
        raise DataError(f"{directory}: a label of the {split.name} is beyond the {split.classes} classes")
    return split


def _resolutions(directory: Path) -> dict[int, Path]:
    """Map the shorter side to the directory of each resolution, the originals last."""
    found = {int(path.name): path for path in directory.iterdir() if path.name.isdecimal() and path.is_dir()}
    places = dict(sorted(found.items()))
    if (directory / ORIGINAL).is_dir():
        places[0] = directory / ORIGINAL
    return places


NOTHING: Final = b""
"""Stands for a missing image."""


@dataclasses.dataclass(kw_only=True)
class RecordReader:
    """Read encoded images of one resolution of a split. Used by several threads at once."""

    split: RecordSplit
    records: RecordIndex
    error: RecordError | None = None
    """An error that must end the run: TensorFlow does not pass exceptions on."""

    def read(self, positions: npt.NDArray[np.int64]) -> list[bytes]:
        """Return the encoded images at these positions; b"" for one that is damaged, where that is allowed.

        Raises RecordError, which names file and record.
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
        """Read what lies in one file. All of it is announced first, so that a slow disk fetches it at once."""
        path = self.records.directory / self.records.files[number]
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            self._handle(RecordError(path, None, f"cannot be opened: {error.strerror}"), positions[slots])
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
        """Record damaged examples, and report each once."""
        fresh = {int(position) for position in positions} - self.split.damaged
        if fresh:
            self.split.damaged |= fresh
            print(f"payload.data: left out: {why}", file=sys.stderr, flush=True)

    def fault(self, position: int, why: str) -> RecordError:
        """Return the error of a record whose image cannot be decoded."""
        row = self.records.table[position]
        return RecordError(self.records.directory / self.records.files[int(row["file"])], int(row["offset"]), why)
