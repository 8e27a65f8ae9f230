"""How far a piece of work on a node is, told in JSON lines."""

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
    """Tell how far a piece of work is, now and then; also while nothing happens, so that nobody takes it for dead."""

    def __init__(self, emit: Emit, entries: Iterable[Entry], every_s: float = EVERY_S) -> None:
        listed = list(entries)
        self._emit, self._every_s = emit, every_s
        self._total = {"of_files": len(listed), "of_bytes": sum(entry.size for entry in listed)}
        self._files = self._bytes = self._on_the_way = 0
        self._told = float("-inf")
        self._lock = threading.Lock()

    def add(self, entry: Entry) -> None:
        """Count one file that is done."""
        with self._lock:
            self._files += 1
            self._bytes += entry.size
            self._on_the_way = 0
            self._tell()

    def in_flight(self, count: int) -> None:
        """Say how many bytes have come of files that are not done."""
        with self._lock:
            self._on_the_way = count
            self._tell()

    def _tell(self) -> None:
        if time.monotonic() - self._told >= self._every_s:
            self._told = time.monotonic()
            self._emit({"files": self._files, "bytes": self._bytes + self._on_the_way, **self._total})

    def end(self) -> None:
        """Tell it once more."""
        with self._lock:
            self._told = float("-inf")
            self._tell()


def emit_paths(emit: Emit, kind: str, paths: Sequence[str]) -> None:
    """Tell paths, some on each line: nobody on the way has to hold a line of megabytes."""
    for start in range(0, len(paths), PATHS_PER_LINE):
        emit({kind: paths[start : start + PATHS_PER_LINE]})


def summary(manifest: Manifest, came: int, foreign: int) -> dict[str, Any]:
    """Return what a node holds now, for the end of its work."""
    return {
        "files": len(manifest.entries),
        "bytes": manifest.size,
        "came_bytes": came,
        "foreign": foreign,
        "digest": manifest.digest,
    }
