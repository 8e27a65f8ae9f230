"""Runs recorded on the embedded cloud: digits on two nodes, and the same stopped and resumed."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any, Final

from cluster.report.model import RunReport
from cluster.report.run_files import RunFiles, read_run
from cluster.report.run_report import report_of

RECORDS: Final = Path(__file__).parent / "records"
DIGITS: Final = RECORDS / "digits"
RESUMED: Final = RECORDS / "resumed"


def raw(directory: Path = DIGITS) -> dict[str, Any]:
    """Return a run's record.json."""
    found: dict[str, Any] = json.loads((directory / "record.json").read_text())
    return found


def raw_metrics(directory: Path = DIGITS) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics.jsonl."""
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def changed(**parts: Any) -> RunFiles:
    """Return the recorded run of digits with other parts of its record, each a mapping of what differs in that part."""
    files = read_run(DIGITS)
    record = copy.deepcopy(dict(files.record))
    for name, value in parts.items():
        record[name] = {**(record.get(name) or {}), **value} if isinstance(value, dict) else value
    return dataclasses.replace(files, record=record)


def report(directory: Path = DIGITS) -> RunReport:
    """Return the report of a recorded run."""
    return report_of(read_run(directory))
