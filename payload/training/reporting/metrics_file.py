"""Write a run's metrics.jsonl while it runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import IO, Final

from agent.files.atomic_write import storing

METRICS_FILE: Final = "metrics.jsonl"
STEP_INTERVAL_S: Final = 0.5
"""Minimum time between step events. It is short enough for a live display and keeps the file small."""
Value = float | int | str | bool | None


class Metrics:
    """Append events to metrics.jsonl. Each line is a JSON object, and is complete as soon as it is written."""

    def __init__(self, run_dir: Path, *, started: float) -> None:
        """Open the file to append, or create it and `run_dir`. Raises StorageError.

        `started`: Unix time to measure each event's `elapsed_s` from.
        """
        self._path = run_dir / METRICS_FILE
        self._started = started
        self._last_step = -STEP_INTERVAL_S
        with storing(self._path):
            run_dir.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = self._path.open("ab", buffering=0)
            self._end_cut_line()

    def _end_cut_line(self) -> None:
        """Terminate a line that a crash left incomplete, so that the next line stays readable."""
        content_end = self._file.tell()
        if content_end:
            with self._path.open("rb") as file:
                file.seek(content_end - 1)
                if file.read(1) != b"\n":
                    self._file.write(b"\n")

    def event(self, event: str, **values: Value) -> None:
        """Append an event with its time and values. Numbers are rounded to six decimals. Raises StorageError."""
        now = time.time()
        record: dict[str, Value] = {"event": event, "time": round(now, 3), "elapsed_s": round(now - self._started, 3)}
        record.update({name: round(v, 6) if isinstance(v, float) else v for name, v in values.items()})
        with storing(self._path):
            self._file.write(json.dumps(record).encode() + b"\n")

    def step_due(self) -> bool:
        """Return whether the next step event is due. If so, count it as written."""
        now = time.monotonic()
        if now - self._last_step < STEP_INTERVAL_S:
            return False
        self._last_step = now
        return True

    def close(self) -> None:
        """Close the metrics file."""
        self._file.close()
