"""Runs recorded on the embedded cloud: digits on two nodes, the same run stopped and resumed, and variants."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any, Final

from cluster.report.run_files import RunFiles, read_run
from cluster.report.run_report import RunReport, report_of

RECORDS: Final = Path(__file__).parent / "records"
DIGITS: Final = RECORDS / "digits"
RESUMED: Final = RECORDS / "resumed"
MARKUP: Final = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&lt;b&gt; {{ 7*7 }} $\\frac{1}{0}$ \x00\x1b[2J\u202e]]>"
)
KEPT: Final = frozenset({"run_id", "state", "event", "name"})
"""Fields that are validated, and therefore cannot be markup."""


def raw(directory: Path = DIGITS) -> dict[str, Any]:
    """Return a run's record.json."""
    found: dict[str, Any] = json.loads((directory / "record.json").read_text())
    return found


def raw_metrics(directory: Path = DIGITS, kind: str = "") -> list[dict[str, Any]]:
    """Return the events in a run's metrics.jsonl, of one kind if given."""
    events = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == kind or not kind]


def changed(**parts: Any) -> RunFiles:
    """Return the recorded run of digits with changes in parts of its record."""
    files = read_run(DIGITS)
    record = copy.deepcopy(dict(files.record))
    for name, value in parts.items():
        record[name] = {**(record.get(name) or {}), **value} if isinstance(value, dict) else value
    return dataclasses.replace(files, record=record)


def with_events(*events: dict[str, Any]) -> RunFiles:
    """Return the recorded run of digits with more events, nine seconds after its start unless they have a time."""
    files, at = read_run(DIGITS), raw()["state"]["started"] + 9
    return dataclasses.replace(files, metrics=(*files.metrics, *({"time": at, **event} for event in events)))


def report(directory: Path = DIGITS) -> RunReport:
    """Return the report of a recorded run."""
    return report_of(read_run(directory))


def another(number: int, *, accuracy: float = 0.9, **settings: Any) -> RunReport:
    """Return the recorded run as another run, with other settings."""
    result = raw()["result"]
    built = report_of(changed(result={"test_accuracy": accuracy, "settings": {**result["settings"], **settings}}))
    return dataclasses.replace(built, run_id=f"run-{number}")


def with_markup(value: Any, key: str = "") -> Any:
    """Return a JSON value with markup in place of each text and name that is not validated."""
    if isinstance(value, dict):
        return {name: with_markup(each, name) for name, each in value.items()} | {MARKUP: MARKUP}
    if isinstance(value, list):
        return [with_markup(each, key) for each in value]
    return value if not isinstance(value, str) or key in KEPT else MARKUP


def hostile_run() -> RunFiles:
    """Return the recorded run with markup in every text."""
    files = read_run(DIGITS)
    record = with_markup(dict(files.record))
    record["state"] |= {"state": "failed", "reason": MARKUP, "last_lines": [MARKUP] * 3}
    record["preflight"]["findings"] = [MARKUP, {"node": MARKUP, "check": MARKUP, "what": MARKUP}]
    confusion = {"labels": [f"{MARKUP}{number}" for number in range(10)], "counts": (files.confusion or {})["counts"]}
    image = (files.mistakes or {})["images"][0]
    mistakes = {"images": [{**image, "class": MARKUP, "recognized_as": MARKUP}, {**image, "png": MARKUP}]}
    return RunFiles(
        record=record,
        metrics=tuple(with_markup(dict(event)) for event in files.metrics),
        confusion=confusion,
        mistakes=mistakes,
        settings=with_markup(dict(files.settings or {})),
    )
