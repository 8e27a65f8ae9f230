"""Read the lines that are added to a growing file, such as the log or the metrics of a run."""

from __future__ import annotations

import errno
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.files.safe_read import is_listed, open_regular

MAX_LINE: Final = 1 << 18
"""Maximum number of bytes read from one line. Ranks may write a line without an end."""
_BLOCK: Final = 1 << 16


class Tail:
    """Read the complete lines that were added to a growing file since the last call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_there = False
        self._offset = 0
        self._rest = b""

    def lines(self, last_bytes: int = sys.maxsize) -> Iterator[str]:
        """Yield the new complete lines of the file one by one, up to the current end of the file.

        Everything before the last `last_bytes` bytes is skipped. A missing file has no lines. See `batches` for the
        rest. Raises OSError if the file cannot be read.
        """
        return itertools.chain.from_iterable(self.batches(last_bytes))

    def batches(self, last_bytes: int = sys.maxsize) -> Iterator[list[str]]:
        """Yield the new complete lines of the file as lists, decoded, up to the current end of the file.

        Lines are truncated to MAX_LINE bytes. An incomplete last line is kept for a later call. Everything before the
        last `last_bytes` bytes is skipped, so the first line may be incomplete. If the file has become shorter, it is
        read from its beginning. A file that is missing, a link or a pipe has no lines. Raises OSError for other errors.
        """
        self._is_there = self._is_there or is_listed(self.path)  # Ranks on another node write the file.
        if not self._is_there:
            return
        try:
            file = open_regular(self.path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL, errno.ELOOP):
                raise
            return  # The run never creates a pipe or a link here.
        with file:
            end = os.fstat(file.fileno()).st_size
            if end < self._offset:  # The log was truncated: read it from its beginning.
                self._offset, self._rest = 0, b""
            self._offset = max(self._offset, end - last_bytes)
            file.seek(self._offset)
            while self._offset < end and (block := file.read(min(_BLOCK, end - self._offset))):
                self._offset += len(block)
                first, *others = block.split(b"\n")
                pieces = [self._rest + first[: MAX_LINE - len(self._rest)], *others]
                self._rest = pieces.pop()
                yield [line.decode("utf-8", errors="replace") for line in pieces]

    def rest(self) -> Iterator[list[str]]:
        """Yield a batch with the incomplete last line, if there is one."""
        if self._rest:
            yield [self._rest.decode("utf-8", errors="replace")]
