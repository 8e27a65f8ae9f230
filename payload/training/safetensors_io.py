"""Stream named arrays to and from a safetensors file, with one copy in memory.

The file contains the length of its header (8 bytes, little-endian), the header (JSON: type, shape and position of each
array), then the bytes of all arrays without gaps. Other programs can read it with the library `safetensors`.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from agent.errors import malformed

CHUNK: Final = 1 << 22
"""Bytes to hash and write at a time, small enough to stay in the processor's cache in between."""
_HEADER_LIMIT: Final = 1 << 27
_TYPES: Final = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
}
_NAMES: Final = {code: name for name, code in _TYPES.items()}

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]


class TensorFileError(ValueError):
    """The bytes are not a valid safetensors file."""


class HashingFile:
    """A file wrapper that counts and hashes bytes as they are read or written."""

    def __init__(self, file: IO[bytes]) -> None:
        """Wrap a file. It must be at its beginning."""
        self._file = file
        self._digest = hashlib.sha256()
        self.bytes = 0

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the bytes read or written so far."""
        return self._digest.hexdigest()

    def write(self, data: memoryview) -> None:
        """Hash and write bytes. Raises OSError."""
        for start in range(0, len(data), CHUNK):
            part = data[start : start + CHUNK]
            self._digest.update(part)
            self._file.write(part)
        self.bytes += len(data)

    def fill(self, data: memoryview) -> None:
        """Read and hash bytes until `data` is full. Raises TensorFileError if the file ends earlier."""
        for start in range(0, len(data), CHUNK):
            part = data[start : start + CHUNK]
            got = 0
            while got < len(part):
                found = self._file.readinto(part[got:])  # type: ignore[attr-defined]  # IO lacks this method of binary files
                if not found:
                    raise TensorFileError(f"the file ends after {self.bytes + start + got} bytes")
                got += found
            self._digest.update(part)
        self.bytes += len(data)


def size_of(arrays: Arrays) -> int:
    """Return the size in bytes of the file that `write_tensors` makes from these arrays. Raises TypeError like it."""
    return len(_header(arrays)) + sum(array.nbytes for array in arrays.values())


def write_tensors(file: HashingFile, arrays: Arrays) -> None:
    """Write arrays in their order. Raises OSError, or TypeError if the format does not support an array's type."""
    file.write(memoryview(_header(arrays)))
    for array in arrays.values():
        file.write(bytes_of(array))


def read_tensors(file: HashingFile, size: int) -> dict[str, Array]:
    """Read the arrays of a file of `size` bytes by name, in file order.

    Raises OSError, or TensorFileError if the file is malformed, shorter than `size`, or would need more memory.
    """
    prefix = bytearray(8)
    file.fill(memoryview(prefix))
    (length,) = struct.unpack("<Q", prefix)
    if not 0 < length <= min(_HEADER_LIMIT, size - len(prefix)):
        raise TensorFileError(f"the file's header has an invalid size: {length} bytes")
    text = bytearray(length)
    file.fill(memoryview(text))
    arrays: dict[str, Array] = {}
    for name, kind, shape in _entries(bytes(text), size - len(prefix) - length):
        arrays[name] = np.empty(shape, kind)
        file.fill(bytes_of(arrays[name]))
    return arrays


def _header(arrays: Arrays) -> bytes:
    entries: dict[str, Any] = {}
    start = 0
    for name, array in arrays.items():
        if array.dtype.name not in _TYPES:
            raise TypeError(f"{name}: the safetensors format has no type for arrays of {array.dtype}")
        end = start + array.nbytes
        entries[name] = {
            "dtype": _TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _entries(text: bytes, size: int) -> list[tuple[str, Any, tuple[int, ...]]]:
    """Return name, type and shape of each array from the header's JSON, in file order.

    Raises TensorFileError if the header is malformed, or if the arrays do not fill exactly `size` bytes.
    """
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        listed = []
        for name, entry in header.items():
            start, end = map(int, entry["data_offsets"])
            listed.append((start, end, name, str(entry["dtype"]), tuple(map(int, entry["shape"]))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TensorFileError(f"the file's header is malformed: {malformed(error)}") from None
    found = []
    at = 0
    for start, end, name, code, shape in sorted(listed, key=lambda entry: entry[:2]):
        kind = _dtype(code)
        if start != at or min(shape, default=0) < 0 or end - start != math.prod(shape) * kind.itemsize:
            raise TensorFileError(
                f"the file's header places array {name} at bytes {start} to {end}, which does not fit its type {code}, "
                f"its shape {shape} or the end of the array before it"
            )
        at = end
        found.append((name, kind, shape))
    if at != size:
        raise TensorFileError(f"the file's header lists {at} bytes of arrays, but {size} bytes follow the header")
    return found


def _dtype(code: str) -> Any:
    if code not in _NAMES:
        raise TensorFileError(f"the file's header has an unknown type: {code!r}")
    if code == "BF16":
        import ml_dtypes  # NumPy has no bfloat16; TensorFlow installs this package

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_NAMES[code]).newbyteorder("<")


def bytes_of(array: Array) -> memoryview:
    """Return the bytes of an array without copying it, or of a copy if the array is not contiguous."""
    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data
