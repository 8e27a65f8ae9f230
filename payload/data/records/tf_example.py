"""Encode tf.train.Example messages with an image, and find the image in one without reading all of it.

Protobuf's own parser needs the whole record, including its image. This module fetches 4 kB from a shared file system.
TensorFlow contains the message's class, but takes seconds to import in each process that makes records.

Wire format of an Example: Example { features = 1 { repeated entry = 1 { key = 1, value = 2 } } }.
A value contains one of the lists bytes = 1, float = 2, int64 = 3. Each list has `value` = 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final

WINDOW: Final = 4096
"""Bytes to fetch at once: enough for a small header and its neighbors."""


class LazyBytes:
    """Random access to a long sequence of bytes, fetched in windows."""

    def __init__(self, fetch: Callable[[int, int], bytes], length: int) -> None:
        """`fetch(start, count)` returns `count` bytes from `start`. `length`: number of bytes in the whole sequence."""
        self._fetch, self._length = fetch, length
        self._start, self._window = 0, b""

    def __len__(self) -> int:
        """Return the length of the whole sequence."""
        return self._length

    def part(self, start: int, size: int) -> bytes:
        """Return `size` bytes from `start`. Raises ValueError beyond the end, or if too few bytes can be fetched."""
        if size < 0 or start < 0 or start + size > self._length:
            raise ValueError(
                f"truncated: expected {size} bytes at byte {start}, but the data ends at byte {self._length}"
            )
        if not self._start <= start or start + size > self._start + len(self._window):
            self._start = start
            self._window = self._fetch(start, min(max(size, WINDOW), self._length - start))
            if len(self._window) < size:
                raise ValueError(f"truncated: expected {size} bytes at byte {start}, but read {len(self._window)}")
        return self._window[start - self._start : start - self._start + size]

    def varint(self, start: int) -> tuple[int, int]:
        """Decode the variable-length integer at `start`; return it and the position after it.

        Raises ValueError if there is none, or too few bytes.
        """
        value = shift = 0
        for place in range(start, start + 10):
            byte = self.part(place, 1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, place + 1
            shift += 7
        raise ValueError(f"not a tf.train.Example: no variable-length integer at byte {start}")


IMAGE: Final = "image/encoded"
LABEL: Final = "image/class/label"
_LENGTH_DELIMITED: Final = 2
_FIXED: Final = {1: 8, 5: 4}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageLocation:
    """The position of an Example's image, and its label."""

    start: int
    """First byte of the encoded image within the Example."""
    size: int
    """Bytes of the encoded image."""
    label: int


def locate(data: LazyBytes) -> ImageLocation:
    """Find the image and label of an Example. Raises ValueError if one is missing or the Example is malformed."""
    image: tuple[int, int] | None = None
    label: int | None = None
    for features in _fields(data, 0, len(data), 1):
        for entry in _fields(data, *features, 1):
            key = b"".join(data.part(start, end - start) for start, end in _fields(data, *entry, 1))
            if key == IMAGE.encode():
                image = _value(data, entry, 1)
            elif key == LABEL.encode():
                label = _number(data, _value(data, entry, 3))
    if image is None or label is None:
        raise ValueError(f"the record has no {IMAGE if image is None else LABEL}")
    return ImageLocation(start=image[0], size=image[1] - image[0], label=label)


def example(features: Mapping[str, bytes | int]) -> bytes:
    """Encode an Example of byte strings and integers. The image is last, so a reader finds the other values first."""
    names = sorted(features, key=lambda name: (name == IMAGE, name))
    return _delimited(1, b"".join(_delimited(1, _entry(name, features[name])) for name in names))


def _entry(name: str, value: bytes | int) -> bytes:
    if isinstance(value, int):
        given = _delimited(3, _delimited(1, _varint(value & (2**64 - 1))))
    else:
        given = _delimited(1, _delimited(1, value))
    return _delimited(1, name.encode("utf-8")) + _delimited(2, given)


def _delimited(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _fields(data: LazyBytes, start: int, end: int, number: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of the content of each field with this number in a message. Raises ValueError."""
    while start < end:
        key, start = data.varint(start)
        kind = key & 7
        if kind == _LENGTH_DELIMITED:
            size, start = data.varint(start)
            after = start + size
        elif kind == 0:
            _, after = data.varint(start)
        elif kind in _FIXED:
            after = start + _FIXED[kind]
        else:
            raise ValueError(f"not a tf.train.Example: the field before byte {start} has the unknown wire type {kind}")
        if after > end:
            raise ValueError(f"not a tf.train.Example: a field at byte {start} extends beyond its message")
        if key >> 3 == number:
            yield start, after
        start = after


def _value(data: LazyBytes, entry: tuple[int, int], kind: int) -> tuple[int, int]:
    """Return start and end of the first value in an entry's list, or of all values if they are packed integers.

    `kind`: 1 for a list of byte strings, 3 for one of integers. Raises ValueError if the entry has no such value.
    """
    for feature in _fields(data, *entry, 2):
        for values in _fields(data, *feature, kind):
            for value in _fields(data, *values, 1):
                return value
    name, field = (IMAGE, "bytes_list") if kind == 1 else (LABEL, "int64_list")
    raise ValueError(f"the record's {name} must have a value in {field}")


def _number(data: LazyBytes, place: tuple[int, int]) -> int:
    value, _ = data.varint(place[0])
    return value - 2**64 if value >= 2**63 else value
