"""TFRecord files: their format, and how a record is read and checked.

A record is its length (8 bytes, little-endian), that number's masked CRC-32C, the data, and theirs.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

import google_crc32c

from payload.data.types import DataError

HEADER: Final = 12
FOOTER: Final = 4
_MASK: Final = 0xA282EAD8
_LONGEST: Final = 1 << 31
"""Largest record, bytes: more is no image, whatever its checksum says."""


class RecordError(DataError):
    """Report a record file that is missing or damaged. Carries `path` and `offset`, the record's; None: the file."""

    def __init__(self, path: Path, offset: int | None, fault: str) -> None:
        self.path, self.offset, self.fault = path, offset, fault
        place = "" if offset is None else f", record at byte {offset}"
        super().__init__(f"{path}{place}: {fault}")


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of the data, masked as TFRecord does, so that a file within a record does no harm."""
    crc = int(google_crc32c.value(data))
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    """Return the data as a record."""
    length = struct.pack("<Q", len(data))
    return b"".join([length, struct.pack("<I", masked_crc(length)), data, struct.pack("<I", masked_crc(data))])


def read_length(header: bytes, path: Path, offset: int, file_size: int) -> int:
    """Return the length of the data of a record from its first 12 bytes, checked. Raises RecordError."""
    if len(header) < HEADER:
        raise RecordError(path, offset, f"the file ends within its header, after {file_size} bytes; copy it anew")
    length, crc = struct.unpack_from("<QI", header)
    if crc != masked_crc(header[:8]):
        raise RecordError(path, offset, "the checksum of its length is wrong; copy the file anew")
    if length > _LONGEST or offset + HEADER + length + FOOTER > file_size:
        raise RecordError(path, offset, f"it has {length} bytes, but the file ends after {file_size}; copy it anew")
    return int(length)


def read_record(descriptor: int, path: Path, offset: int, length: int) -> bytes:
    """Return the checked data of a record whose offset is known. Raises RecordError."""
    whole = HEADER + length + FOOTER
    try:
        content = os.pread(descriptor, whole, offset)
    except OSError as error:
        raise RecordError(path, offset, f"cannot be read: {error.strerror}") from error
    if len(content) < whole:
        raise RecordError(path, offset, "the file ends within it; copy it anew")
    if read_length(content[:HEADER], path, offset, offset + 2 * _LONGEST) != length:
        raise RecordError(path, offset, "it is not the one that the index lists; remove the index beside the file")
    data = content[HEADER:-FOOTER]
    if struct.unpack("<I", content[-FOOTER:])[0] != masked_crc(data):
        raise RecordError(path, offset, "the checksum of its data is wrong; copy the file anew")
    return data
