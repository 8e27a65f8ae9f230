"""Reading and checking the records of a step."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from payload.data.records.index import RecordIndex
from payload.data.records.record_split import RecordSplit
from payload.data.records.tfrecord import FOOTER, HEADER, RecordError, read_record

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
