"""Bytes that are fetched as they are read: a header says where the next one is, and the rest is never fetched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

WINDOW: Final = 4096
"""Bytes fetched at once: enough for a small header and its neighbours."""


class LazyBytes:
    """A long sequence of bytes, fetched in windows."""

    def __init__(self, fetch: Callable[[int, int], bytes], length: int) -> None:
        """`fetch`: takes start and number of bytes. `length`: of the whole."""
        self._fetch, self._length = fetch, length
        self._start, self._window = 0, b""

    def __len__(self) -> int:
        """Return the length of the whole."""
        return self._length

    def part(self, start: int, size: int) -> bytes:
        """Return these bytes. Raises ValueError beyond the end."""
        if size < 0 or start < 0 or start + size > self._length:
            raise ValueError(f"bytes {start} to {start + size} of {self._length}")
        if not self._start <= start or start + size > self._start + len(self._window):
            self._start = start
            self._window = self._fetch(start, min(max(size, WINDOW), self._length - start))
            if len(self._window) < size:
                raise ValueError(f"{len(self._window)} bytes at {start}, where {size} should be")
        return self._window[start - self._start : start - self._start + size]

    def varint(self, start: int) -> tuple[int, int]:
        """Return a number of Protocol Buffers' variable length, and where the next byte lies. Raises ValueError."""
        value = shift = 0
        for place in range(start, start + 10):
            byte = self.part(place, 1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, place + 1
            shift += 7
        raise ValueError(f"no number at byte {start}")
