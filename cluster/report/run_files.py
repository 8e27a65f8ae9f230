"""Read the files of a fetched run. The master wrote them, so each is checked, and a value that is none is left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.spec.states import RECORD_FILE
from cluster import answers
from cluster.errors import DeepcdkError
from cluster.terminal.units import amount

RUNS: Final = Path("runs")
"""Where `fab fetch` brings runs to."""
METRICS_FILE: Final = "metrics.jsonl"
CONFUSION_FILE: Final = "confusion.json"
MISTAKES_FILE: Final = "mistakes.json"
SETTINGS_FILE: Final = "settings.json"
MOST_BYTES: Final = 256 << 20
"""Bytes of one file that are read: twice the metrics of a week, written twice a second."""
LARGEST: Final = 1e15
"""No figure of a run is larger, above zero or below; one that is could not be drawn."""

Document = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFiles:
    """What a run has left, as JSON values."""

    record: Document
    """record.json, which keeps the rule of `cluster.answers.record`."""
    metrics: tuple[Document, ...] = ()
    """The events of metrics.jsonl, in the order written; lines that hold no event are left out."""
    skipped_lines: int = 0
    """Lines of metrics.jsonl that hold no event."""
    confusion: Document | None = None
    """confusion.json; None where the run wrote none."""
    mistakes: Document | None = None
    """mistakes.json; None where the run wrote none."""
    settings: Document | None = None
    """settings.json, which is there from the start; None where the run wrote none."""


def read_run(directory: Path) -> RunFiles:
    """Read a fetched run. Raises DeepcdkError where there is no whole record."""
    path = directory / RECORD_FILE
    try:
        record = answers.parse(_text(path))
        wrong = answers.record(record)
    except FileNotFoundError:
        raise DeepcdkError(
            f"{directory} holds no {RECORD_FILE}",
            remedy="give the directory of a fetched run, as ./runs/ID, or a run's id; a run has a record from its "
            "first minute on",
        ) from None
    except ValueError as error:
        wrong = f"it is no JSON: {error}"
    if wrong:
        raise DeepcdkError(f"{path} is not the record of a run: {wrong}", remedy="fetch the run again: `fab fetch`")
    events, skipped = _events(directory / METRICS_FILE)
    return RunFiles(
        record=record,
        metrics=events,
        skipped_lines=skipped,
        confusion=_document(directory / CONFUSION_FILE),
        mistakes=_document(directory / MISTAKES_FILE),
        settings=_document(directory / SETTINGS_FILE),
    )


def _text(path: Path) -> str:
    """Return a file's text. Raises FileNotFoundError, and DeepcdkError for one that is too large or unreadable."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise DeepcdkError(f"{path} has {amount(size)}, of which {amount(MOST_BYTES)} at most are read")
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DeepcdkError(f"{path} cannot be read: {error.strerror}") from None


def _document(path: Path) -> Document | None:
    """Return a file's JSON object, None where there is no such file or it holds none."""
    try:
        found = answers.parse(_text(path))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _events(path: Path) -> tuple[tuple[Document, ...], int]:
    """Return the events of a file of metrics, and how many lines hold none."""
    try:
        lines = _text(path).splitlines()
    except FileNotFoundError:
        return (), 0
    found = []
    for line in lines:
        try:
            event = answers.parse(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            found.append(event)
    return tuple(found), len(lines) - len(found)


def number(value: object) -> float | None:
    """Return a number up to LARGEST as it is, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        return None
    return value


def whole(value: object) -> int | None:
    """Return a whole number up to LARGEST as it is, None for anything else."""
    return value if isinstance(value, int) and number(value) is not None else None


def moment(value: object) -> float | None:
    """Return unix time, None for anything else."""
    return None if answers.moment(value) else float(value)  # type: ignore[arg-type]  # the rule takes numbers alone


def document(value: object) -> Document:
    """Return a JSON object as it is, an empty one for anything else."""
    return value if isinstance(value, dict) else {}
