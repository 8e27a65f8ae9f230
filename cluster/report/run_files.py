"""Read the files of a fetched run. The nodes wrote them, so invalid values are left out."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.files.safe_read import read_regular
from agent.spec.run_id import is_generated_id
from agent.spec.run_states import RECORD_FILE
from cluster import master_answers as answers
from cluster.errors import DeepcdkError
from cluster.terminal.units import amount

RUNS: Final = Path("runs")
"""Directory of fetched runs."""
MAX_BYTES: Final = 256 << 20
"""Maximum size of a file to read: the metrics of two weeks, written twice a second."""
MAX_DOCUMENT_BYTES: Final = 32 << 20
"""Maximum size of a file that is parsed as one value."""
MAX_NUMBER: Final = 1e15
"""Larger numbers are invalid; they could not be drawn."""

Document = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFiles:
    """The files of a run, as JSON values. A file that is missing or invalid is None."""

    record: Document
    """record.json, checked with `answers.record`."""
    metrics: tuple[Document, ...] = ()
    """The events in metrics.jsonl, in the order written."""
    skipped_lines: int = 0
    """Lines of metrics.jsonl without an event."""
    confusion: Document | None = None
    mistakes: Document | None = None
    settings: Document | None = None


def read_run(directory: Path) -> RunFiles:
    """Read a fetched run. Other files than its record may be missing or invalid.

    Raises DeepcdkError if it has no valid record, if the directory's name is the id of another run, or if a file is too
    large or unreadable. The ids must agree, because report names contain the id in the record.
    """
    path, name = directory / RECORD_FILE, directory.resolve().name
    text = _text(path)
    if text is None:
        raise DeepcdkError(
            f"{directory} has no {RECORD_FILE}",
            remedy="give the id of a run, or the directory of a fetched run, such as ./runs/ID. A run has a record "
            "from its first minute",
        )
    remedy = _refetch(directory)
    try:
        record = answers.parse(text)
        wrong = answers.record(record)
        if not wrong and is_generated_id(name) and record["run_id"] != name:
            wrong = f"it is about run {record['run_id']}, but the directory is named {name}"
            remedy = f"rename the directory to {record['run_id']}"
    except ValueError as error:
        wrong = f"invalid JSON: {error}"
    if wrong:
        raise DeepcdkError(f"{path} is not a valid record: {wrong}", remedy=remedy)
    events, skipped = _events(_text(directory / "metrics.jsonl", MAX_BYTES) or "")
    confusion, mistakes, settings = (
        _document(directory / f"{name}.json") for name in ("confusion", "mistakes", "settings")
    )
    return RunFiles(
        record=record,
        metrics=events,
        skipped_lines=skipped,
        confusion=confusion,
        mistakes=mistakes,
        settings=settings,
    )


def _text(path: Path, max_bytes: int = MAX_DOCUMENT_BYTES) -> str | None:
    """Return a file's text, or None if there is no file. Raises DeepcdkError if it is too large or unreadable."""
    try:
        return read_regular(path, max_bytes).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.EFBIG:
            size = amount(path.stat().st_size)
            raise DeepcdkError(
                f"{path} is too large: {size}, at most {amount(max_bytes)} are read",
                remedy=f"{_refetch(path.parent)}; if the file is still too large, shorten it",
            ) from None
        raise DeepcdkError(f"{path} cannot be read: {error.strerror}", remedy="make it a readable file") from None


def _refetch(directory: Path) -> str:
    """Return the remedy for a damaged file of a fetched run: the command that fetches the run again."""
    name = directory.resolve().name
    return f"fetch the run again: `fab fetch --run {name if is_generated_id(name) else 'ID'}`"


def _document(path: Path) -> Document | None:
    try:
        found = answers.parse(_text(path) or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _events(text: str) -> tuple[tuple[Document, ...], int]:
    """Return the events in a file of metrics, and the number of lines that are not an event."""
    found, lines = [], text.splitlines()
    for line in lines:
        try:
            event = answers.parse(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            found.append(event)
    return tuple(found), len(lines) - len(found)


def number(value: object) -> float | None:
    """Return the value if it is a number of at most MAX_NUMBER, positive or negative; otherwise None.

    Booleans are not numbers here.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
        return None
    return value


def whole(value: object) -> int | None:
    """Return the value if it is a whole number of at most MAX_NUMBER, positive or negative; otherwise None."""
    return value if isinstance(value, int) and number(value) is not None else None


def moment(value: object) -> float | None:
    """Return the value if it is a valid Unix time; otherwise None."""
    return None if answers.moment(value) else float(value)  # type: ignore[arg-type]  # moment accepts only numbers


def document(value: object) -> Document:
    """Return the value if it is a JSON object; otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def documents(value: object) -> list[Document]:
    """Return the JSON objects in a list; [] if the value is no list. Other items are left out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
