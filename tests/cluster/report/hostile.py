"""A run whose record was written by somebody who means harm: every text of it is markup."""

from __future__ import annotations

from typing import Any, Final

from cluster.report.run_files import RunFiles, read_run
from tests.cluster.report.recorded_runs import DIGITS

MARKUP: Final = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&lt;b&gt; {{ 7*7 }} $\\frac{1}{0}$ \x00\x1b[2J\u202e]]>"
)
KEPT: Final = frozenset({"run_id", "state", "event", "name"})
"""Fields that are checked before they are used, and so cannot be markup."""


def spoilt(value: Any, key: str = "") -> Any:
    """Return a JSON value with markup for each text and for each name that is free."""
    if isinstance(value, dict):
        return {name: spoilt(each, name) for name, each in value.items()} | {MARKUP: MARKUP}
    if isinstance(value, list):
        return [spoilt(each, key) for each in value]
    return value if not isinstance(value, str) or key in KEPT else MARKUP


def hostile_run() -> RunFiles:
    """Return the recorded run with markup for each text."""
    files = read_run(DIGITS)
    record = spoilt(dict(files.record))
    record["state"] |= {"state": "failed", "reason": MARKUP, "last_lines": [MARKUP] * 3}
    record["preflight"]["findings"] = [MARKUP, {"node": MARKUP, "check": MARKUP, "what": MARKUP}]
    confusion = {"labels": [f"{MARKUP}{number}" for number in range(10)], "counts": (files.confusion or {})["counts"]}
    return RunFiles(
        record=record,
        metrics=tuple(spoilt(dict(event)) for event in files.metrics),
        confusion=confusion,
        mistakes={
            "images": [
                {**(files.mistakes or {})["images"][0], "class": MARKUP, "recognised_as": MARKUP},
                {"class": "a", "recognised_as": "b", "confidence": 0.5, "png": MARKUP},
            ]
        },
        settings=spoilt(dict(files.settings or {})),
    )
