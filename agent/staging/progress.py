"""Report the progress of a node's work as JSON lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from agent.staging.manifest import Entry, Manifest

EVERY_S: Final = 0.5
PATHS_PER_LINE: Final = 100

Emit = Callable[[dict[str, Any]], None]


class ProgressMeter:
    """Count files and bytes, and report the counts at most every `every_s` seconds."""

    def __init__(self, emit: Emit, entries: Iterable[Entry], every_s: float = EVERY_S) -> None:
        listed = list(entries)
        self._emit, self._every_s = emit, every_s
        self._total = {"of_files": len(listed), "of_bytes": sum(entry.size for entry in listed)}
        self._files = self._bytes = self._in_flight = 0
        self._reported_at = float("-inf")
        self._lock = threading.Lock()

    def add(self, entry: Entry) -> None:
        """Count a finished file, and report the counts if they are due."""
        with self._lock:
            self._files += 1
            self._bytes += entry.size
            self._in_flight = 0
            self._report()

    def in_flight(self, count: int) -> None:
        """Set the number of bytes that have arrived for unfinished files, and report the counts if they are due.

        The next finished file resets the number.
        """
        with self._lock:
            self._in_flight = count
            self._report()

    def _report(self) -> None:
        if time.monotonic() - self._reported_at >= self._every_s:
            self._reported_at = time.monotonic()
            self._emit({"files": self._files, "bytes": self._bytes + self._in_flight, **self._total})

    def end(self) -> None:
        """Report the final counts."""
        with self._lock:
            self._reported_at = float("-inf")
            self._report()


def emit_paths(emit: Emit, kind: str, paths: Sequence[str]) -> None:
    """Report paths as `{kind: [PATH, ...]}`, PATHS_PER_LINE per line, so that no line has megabytes."""
    for start in range(0, len(paths), PATHS_PER_LINE):
        emit({kind: paths[start : start + PATHS_PER_LINE]})


def summary(manifest: Manifest, came: int, foreign: int) -> dict[str, Any]:
    """Return a node's final report about a data set: `files`, `bytes`, `came_bytes`, `foreign` and `digest`.

    `came` is the number of bytes that were copied now. `foreign` is the number of files in the directory that the
    manifest does not list.
    """
    return {
        "files": len(manifest.entries),
        "bytes": manifest.size,
        "came_bytes": came,
        "foreign": foreign,
        "digest": manifest.digest,
    }
