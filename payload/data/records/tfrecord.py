"""Read, check and write the records of TFRecord files.

A record is its length (8 bytes, little-endian), the length's masked CRC-32C, the data, and the data's masked CRC-32C.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

import google_crc32c

from payload.data.dataset import DataError

HEADER: Final = 12
FOOTER: Final = 4
_MASK: Final = 0xA282EAD8
_LONGEST: Final = 1 << 31
"""Largest record, bytes. A longer record cannot be an image, even if its checksum is right."""


class RecordError(DataError):
    """A record file is missing or damaged. `offset`: the damaged record's first byte; None: the whole file."""

    def __init__(self, path: Path, offset: int | None, fault: str) -> None:
        self.path, self.offset, self.fault = path, offset, fault
        place = "" if offset is None else f", record at byte {offset}"
        super().__init__(f"{path}{place}: {fault}")


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of the data, masked as in a TFRecord. The mask allows a record to contain a record file."""
    crc = int(google_crc32c.value(data))
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    """Encode the data as a record."""
    length = struct.pack("<Q", len(data))
    return b"".join([length, struct.pack("<I", masked_crc(length)), data, struct.pack("<I", masked_crc(data))])


def read_length(header: bytes, path: Path, offset: int, file_size: int) -> int:
    """Decode the length of a record's data from `header`, the record's first 12 bytes.

    `offset`: position of the record in the file. Raises RecordError if the header is incomplete, its checksum is wrong,
    the data are longer than 2 GiB, or the record would extend past the end of the file.
    """
    if len(header) < HEADER:
        raise RecordError(
            path, offset, f"the file ends within the record's header, after {file_size} bytes; copy the file again"
        )
    length, crc = struct.unpack_from("<QI", header)
    if crc != masked_crc(header[:8]):
        raise RecordError(path, offset, "the checksum of the record's length is wrong; copy the file again")
    if length > _LONGEST or offset + HEADER + length + FOOTER > file_size:
        bound = f"the file ends after {file_size}; copy the file again"
        if length > _LONGEST:
            bound = "2 GiB is the limit; write smaller records"
        raise RecordError(path, offset, f"the record has {length} bytes, but {bound}")
    return int(length)


def read_record(descriptor: int, path: Path, offset: int, length: int) -> bytes:
    """Read a record's data and verify both checksums.

    `offset` and `length`: position of the record and size of its data, as in the index. Raises RecordError if the
    record is damaged, cannot be read, or has another length.
    """
    whole = HEADER + length + FOOTER
    try:
        content = os.pread(descriptor, whole, offset)
    except OSError as error:
        raise RecordError(
            path, offset, f"cannot be read: {error.strerror}; make it readable, or copy the file again"
        ) from error
    if len(content) < whole:
        raise RecordError(path, offset, "the file ends within the record; copy the file again")
    if read_length(content[:HEADER], path, offset, offset + 2 * _LONGEST) != length:
        raise RecordError(
            path,
            offset,
            "the record differs from the index; remove the split's .index file, next to the file or in "
            "~/.cache/deepcdk/records",
        )
    data = content[HEADER:-FOOTER]
    if struct.unpack("<I", content[-FOOTER:])[0] != masked_crc(data):
        raise RecordError(path, offset, "the checksum of the record's data is wrong; copy the file again")
    return data
