"""Read IDX files, the format of MNIST and Fashion-MNIST. They may be compressed with gzip.

Layout: two zero bytes, a type byte, the number of dimensions, each dimension as a big-endian 32-bit number, the values.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from payload.data.dataset import DataError

_TYPES: Final = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class IdxError(DataError):
    """An IDX file cannot be read. Carries `path` and `fault`. The message also has the remedy."""

    def __init__(self, path: Path, fault: str, remedy: str = "copy the file again") -> None:
        self.path, self.fault = path, fault
        super().__init__(f"{path}: {fault}; {remedy}")


def find_idx(directory: Path, name: str) -> Path:
    """Return the path of `name` or `name`.gz in the directory. Raises IdxError if neither exists."""
    for candidate in (directory / name, directory / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    remedy = "set --data-dir to the directory of the file"
    raise IdxError(directory / name, "no such file, with or without .gz", remedy)


def read_idx(path: Path) -> npt.NDArray[Any]:
    """Read an IDX file, plain or compressed with gzip; return an array with the shape and type in its header.

    The byte order is the machine's. Raises IdxError, which names the file, if the file is missing, unreadable,
    truncated, too long or not an IDX file.
    """
    content = _content(path)
    if len(content) < 4:
        raise IdxError(path, f"truncated: {len(content)} bytes, less than a header")
    zeros, kind, dimensions = struct.unpack_from(">HBB", content)
    if zeros != 0 or kind not in _TYPES or not dimensions:
        raise IdxError(path, f"not an IDX file: it starts with {content[:4].hex(' ')}")
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise IdxError(path, f"truncated: {len(content)} bytes, less than its header of {start} bytes")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    dtype = np.dtype(_TYPES[kind])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        fault = "truncated" if len(content) < expected else "too long"
        raise IdxError(
            path, f"{fault}: {len(content)} bytes, but the shape {shape} in its header needs {expected} bytes"
        )
    values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except FileNotFoundError:
        raise IdxError(path, "no such file") from None
    except EOFError:
        raise IdxError(path, "truncated: its gzip stream ends early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise IdxError(path, f"damaged: {error}") from error
    except OSError as error:
        remedy = "make it readable, or copy the file again"
        raise IdxError(path, f"cannot be read: {error.strerror}", remedy) from error


def read_idx_pair(directory: Path, prefix: str, *, classes: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Read PREFIX-images-idx3-ubyte as [N, height, width, 1] and PREFIX-labels-idx1-ubyte as [N], 0 to classes - 1.

    Raises IdxError if a file is missing or damaged, has an unexpected shape, does not match the other one, or has a
    label that is too large.
    """
    images = _read(find_idx(directory, f"{prefix}-images-idx3-ubyte"), dimensions=3)
    label_file = find_idx(directory, f"{prefix}-labels-idx1-ubyte")
    labels = _read(label_file, dimensions=1)
    if len(images) != len(labels):
        raise IdxError(
            label_file,
            f"{len(labels)} labels, but {prefix}-images-idx3-ubyte has {len(images)} images",
            "copy both files again",
        )
    if len(labels) and labels.max() >= classes:
        raise IdxError(label_file, f"has label {labels.max()}, but labels must be 0 to {classes - 1}")
    return images[..., np.newaxis], labels.astype(np.int32)


def _read(path: Path, *, dimensions: int) -> npt.NDArray[Any]:
    values = read_idx(path)
    if values.ndim != dimensions or values.dtype != np.uint8:
        raise IdxError(
            path,
            f"contains {values.dtype} values of shape {values.shape}, but must have bytes in {dimensions} dimensions",
            "copy the file of this data set again",
        )
    return values
