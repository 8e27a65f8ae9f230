"""Named arrays in one file of the safetensors format, written and read as a stream, with one copy in memory.

The file is the length of its header (8 bytes, little-endian), the header (JSON: type, shape and place of each array),
then the bytes of all arrays without gaps. Other programs read it with the library `safetensors`.
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

CHUNK: Final = 1 << 22
"""Bytes hashed and written at a time, so that they are still in the processor's cache when they are written."""
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
    """Report bytes that are not a safetensors file."""


class HashingFile:
    """A file whose bytes are counted and hashed as they are read or written."""

    def __init__(self, file: IO[bytes]) -> None:
        """Wrap a file at its beginning."""
        self._file = file
        self._digest = hashlib.sha256()
        self.bytes = 0

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of what has passed so far."""
        return self._digest.hexdigest()

    def write(self, data: memoryview) -> None:
        """Hash and write bytes."""
        for start in range(0, len(data), CHUNK):
            part = data[start : start + CHUNK]
            self._digest.update(part)
            self._file.write(part)
        self.bytes += len(data)

    def fill(self, data: memoryview) -> None:
        """Read and hash as many bytes as `data` takes. Raises TensorFileError where the file ends before."""
        for start in range(0, len(data), CHUNK):
            part = data[start : start + CHUNK]
            got = 0
            while got < len(part):
                found = self._file.readinto(part[got:])  # type: ignore[attr-defined]  # IO lacks what its files have
                if not found:
                    raise TensorFileError(f"it ends after {self.bytes + start + got} bytes")
                got += found
            self._digest.update(part)
        self.bytes += len(data)


def size_of(arrays: Arrays) -> int:
    """Return the bytes of the file that will hold these arrays."""
    return len(_header(arrays)) + sum(array.nbytes for array in arrays.values())


def write_tensors(file: HashingFile, arrays: Arrays) -> None:
    """Write arrays in their order. Raises OSError as the file does, TypeError for a type that the format lacks."""
    file.write(memoryview(_header(arrays)))
    for array in arrays.values():
        file.write(bytes_of(array))


def read_tensors(file: HashingFile, size: int) -> dict[str, Array]:
    """Read the arrays of a file of `size` bytes. Raises TensorFileError, before memory is taken for more than that."""
    prefix = bytearray(8)
    file.fill(memoryview(prefix))
    (length,) = struct.unpack("<Q", prefix)
    if not 0 < length <= min(_HEADER_LIMIT, size - len(prefix)):
        raise TensorFileError(f"its header would have {length} bytes")
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
            raise TypeError(f"{name}: arrays of {array.dtype} cannot be kept")
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
    """Return name, type and shape of each array, in the order in which they lie in `size` bytes."""
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        listed = []
        for name, entry in header.items():
            start, end = map(int, entry["data_offsets"])
            listed.append((start, end, name, str(entry["dtype"]), tuple(map(int, entry["shape"]))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TensorFileError(f"its header cannot be read: {error!r}") from None
    found = []
    at = 0
    for start, end, name, code, shape in sorted(listed, key=lambda entry: entry[:2]):
        kind = _dtype(code)
        if start != at or min(shape, default=0) < 0 or end - start != math.prod(shape) * kind.itemsize:
            raise TensorFileError(f"its header gives {name} bytes {start} to {end}, as {code} of shape {shape}")
        at = end
        found.append((name, kind, shape))
    if at != size:
        raise TensorFileError(f"its header lists {at} bytes of arrays; {size} follow it")
    return found


def _dtype(code: str) -> Any:
    if code not in _NAMES:
        raise TensorFileError(f"its header names the type {code!r}")
    if code == "BF16":
        import ml_dtypes  # NumPy has no such type of its own; TensorFlow brings this one

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_NAMES[code]).newbyteorder("<")


def bytes_of(array: Array) -> memoryview:
    """Return the bytes of an array: its own where it is contiguous, else those of a copy."""
    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data
