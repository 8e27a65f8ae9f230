"""Follows log files, and ships new lines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

# PutLogEvents accepts at most 10,000 events and 1 MiB; each line counts 26 bytes more. These limits are well below.
_LINES: Final = 1000
_BYTES: Final = 512 * 1024
_LINE_BYTES: Final = 64 * 1024


class Shipping(Protocol):
    """Destination of log lines."""

    def create_stream(self, group: str, stream: str) -> None:
        """Create a stream if it does not exist."""

    def put_events(self, group: str, stream: str, lines: list[str]) -> None:
        """Append lines to a stream."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """One entry of the configuration's `collect_list`."""

    pattern: str
    group: str
    stream: str
    every_file: bool
    """Ship every matching file to a separate stream. Otherwise, ship only the most recently changed file."""

    @classmethod
    def parse(cls, entry: Mapping[str, Any], facts: Mapping[str, str]) -> Source:
        """Parse an entry of the configuration. `facts` replace placeholders such as {instance_id} in the stream's name.

        Without a name, the stream is called {instance_id}.
        """
        stream = str(entry.get("log_stream_name", "{instance_id}"))
        for name, value in facts.items():
            stream = stream.replace(f"{{{name}}}", value)
        return cls(
            pattern=str(entry["file_path"]),
            group=str(entry["log_group_name"]),
            stream=stream,
            every_file=bool(entry.get("publish_multi_logs", False)),
        )

    def files(self) -> dict[str, str]:
        """Return the files to ship, each with the name of its stream: all that match, or only the latest changed."""
        matches = Path("/").glob(self.pattern.lstrip("/"))
        found = sorted(str(path) for path in matches if path.is_file())
        if self.every_file:
            return {path: f"{self.stream}_{_stream_part(path)}" for path in found}
        newest = max(found, key=lambda path: Path(path).stat().st_mtime, default=None)
        return {newest: self.stream} if newest else {}


def _stream_part(path: str) -> str:
    """Convert a path to the form that the agent uses in stream names."""
    return re.sub(r"[^.\-_/#A-Za-z0-9]", "_", path).replace("/", "_")


class Tail:
    """Ships new lines from all files of several sources."""

    def __init__(self, sources: list[Source], to: Shipping) -> None:
        self.sources, self.to = sources, to
        self._offsets: dict[str, int] = {}
        self._streams: set[tuple[str, str]] = set()

    def ship(self) -> None:
        """Send all complete new lines, and create missing streams.

        Raises the errors of the destination `to`. The next call continues with the lines that were not sent.
        """
        for source in self.sources:
            for path, stream in source.files().items():
                for lines, end in _new_lines(Path(path), self._offsets.get(path, 0)):
                    if (source.group, stream) not in self._streams:
                        self.to.create_stream(source.group, stream)
                        self._streams.add((source.group, stream))
                    if lines:
                        self.to.put_events(source.group, stream, lines)
                    self._offsets[path] = end


def _new_lines(path: Path, offset: int) -> Iterator[tuple[list[str], int]]:
    """Yield batches of complete lines after an offset, each with the offset of its end; none for a missing file.

    A file that has become shorter than the offset is read from its start.
    """
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < offset:
                offset = 0  # it was truncated
            file.seek(offset)
            while True:
                lines, end = _batch(file, offset)
                if end == offset:
                    return
                yield lines, end
                offset = end
    except FileNotFoundError:
        return


def _batch(file: Any, offset: int) -> tuple[list[str], int]:
    """Return some complete lines and the offset of their end. Empty lines are omitted, as events must not be empty.

    Lines longer than 64 KiB are split.
    """
    lines: list[str] = []
    size = 0
    while len(lines) < _LINES and size < _BYTES:
        line = file.readline(_LINE_BYTES)
        if not line.endswith(b"\n") and len(line) < _LINE_BYTES:
            break  # the line is not complete yet
        offset += len(line)
        size += len(line) + 26
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            lines.append(text)
    return lines, offset
