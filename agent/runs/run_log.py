"""The log of a run, launcher.log: cut it when it is long, and read its end."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path
from typing import Final

from agent.files.atomic_write import move_directory, no_follow, open_to_append, write_atomically
from agent.files.safe_read import NOT_READ, open_regular
from agent.runs.stored_state import LAST_LINES
from agent.spec.long_lines import LongLines, without_controls

MAX_LOG_BYTES: Final = 128 << 20
KEPT_LOG_BYTES: Final = 32 << 20
"""Size of the end of a truncated log that is kept in launcher-1.log."""
_CUT: Final = re.compile(rb"\[supervisor\] (\d{1,12}) earlier lines were removed")
_MAX_CUT: Final = 200
_OF_RANK: Final = re.compile(r"\[\d{1,9}\]<std")
_LAST_BYTES: Final = 1 << 18
"""Number of bytes to read from the end of the log for its last lines."""


def earlier(log: Path) -> Path:
    """Return the path of the file for the last lines that were cut off a log."""
    return log.with_name("launcher-1.log")


def cut(log: Path, most_bytes: int = MAX_LOG_BYTES, kept_bytes: int = KEPT_LOG_BYTES) -> bool:
    """Truncate a log of more than `most_bytes`, and keep its last `kept_bytes` in the file `earlier`.

    Return whether the log was truncated. Processes append to the log, so they continue in the truncated file. Its first
    line states how many lines were before it. Raises OSError.
    """
    with open(log, "r+b", buffering=0, opener=no_follow) as file:
        if os.fstat(file.fileno()).st_size <= most_bytes:
            return False
        count = lines_before(log, file.read(_MAX_CUT))
        file.seek(0)
        while block := file.read(1 << 20):
            count += block.count(b"\n")
        size = file.tell()
        file.seek(max(0, size - kept_bytes))
        kept = b"".join(iter(lambda: file.read(min(1 << 20, size - file.tell())), b""))
        whole, newline, rest = kept.rpartition(b"\n")
        move_directory(earlier(log))
        write_atomically(earlier(log), whole.partition(b"\n")[2] + newline)
        rest += b"".join(iter(lambda: file.read(1 << 20), b""))  # written since
        file.truncate(0)
    with open_to_append(log) as appended:
        limit = f"{most_bytes >> 20} MiB" if most_bytes >> 20 else f"{most_bytes} bytes"
        note = f"[supervisor] {count} earlier lines were removed, because the log had reached {limit};"
        appended.write(f"{note} {earlier(log).name} contains the last of them\n".encode() + rest)
    return True


def lines_before(log: Path, beginning: bytes | None = None) -> int:
    """Return how many lines were cut off before the first line of a log; 0 for a complete log.

    A truncated log states this number in its first line. `beginning` is the beginning of a line, if it was read before.
    The result is 0 if this line does not state the number.
    """
    if beginning is None:
        with contextlib.suppress(OSError), open_regular(log) as file:
            beginning = file.read(_MAX_CUT)
    found = _CUT.match(beginning or b"")
    return int(found[1]) if found else 0


def last_lines(
    log: Path, count: int = LAST_LINES, *, rank: int | None = None, size: int = _LAST_BYTES, text: str | None = None
) -> list[str]:
    """Return the last `count` lines in the last `size` bytes of launcher.log, shortened by `LongLines`.

    Control characters are removed. With `rank`, return only this rank's lines: after a rank fails, other ranks and the
    launcher print errors too. If it has printed nothing, return the lines of the launcher. `text` contains these bytes,
    if they were read before. Return [] if the log is missing, or a link or a pipe. Raises OSError for other errors.
    """
    text = last_text(log, size) if text is None else text
    if len(text.encode()) >= size:  # its first line is cut
        text = text.partition("\n")[2]
    lines = text.splitlines()
    if rank is not None:
        own = [line for line in lines if line.startswith(f"[{rank}]<std")]
        lines = own or [line for line in lines if not _OF_RANK.match(line)]
    return [without_controls(line) for line in LongLines().shorten(lines)[-count:]]


def last_text(log: Path, size: int) -> str:
    """Return the last `size` bytes of launcher.log; "" if it is missing, or a link or a pipe.

    If the log was truncated and is shorter, the result begins with lines from the file `earlier`, unless that is
    missing, or a link or a pipe. Raises OSError for other errors.
    """
    text = _end_of(log, size)
    if len(text) < size and lines_before(log, text[:_MAX_CUT]):
        text = _end_of(earlier(log), size - len(text)) + text
    return text.decode("utf-8", errors="replace")


def _end_of(path: Path, size: int) -> bytes:
    """Return the last `size` bytes of a file; b"" if it is missing, or a link or a pipe. Raises OSError.

    A rank could replace the file with a link to the master's private key, and find the key in state.json.
    """
    try:
        with open_regular(path) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read(size)
    except OSError as error:
        if error.errno not in (errno.ENOENT, *NOT_READ):
            raise
        return b""
