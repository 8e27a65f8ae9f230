"""The formats of a report, and where its files go: each whole or not at all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import write_atomically
from cluster.errors import DeepcdkError, UsageError
from cluster.report.comparison import Comparison
from cluster.report.model import FORMAT, RunReport

HTML, MARKDOWN, JSON = "html", "md", "json"
FORMATS: Final = (HTML, MARKDOWN, JSON)


def parse_formats(text: str) -> tuple[str, ...]:
    """Parse --format html,md,json. Raises UsageError for another format, and for none."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found or not set(found) <= set(FORMATS):
        raise UsageError("--format", text, f"must be some of {', '.join(FORMATS)}, with commas between")
    return found


def run_document(report: RunReport) -> dict[str, Any]:
    """Return the report of one run as JSON values."""
    return {"format": FORMAT, "report": "run", **dataclasses.asdict(report)}


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return runs side by side as JSON values."""
    document = dataclasses.asdict(comparison)
    for setting, compared in zip(document["settings"], comparison.settings, strict=True):
        setting["differs"] = compared.differs
    for repeats in document["repeats"]:
        repeats["figures"] = dict(repeats["figures"])
    return {"format": FORMAT, "report": "comparison", **document}


def rendered(report: RunReport | Comparison, kind: str) -> str:
    """Return the report of one run, or of several side by side, in a format."""
    from cluster.report import html, markdown

    if isinstance(report, Comparison):
        return _in_format(
            kind,
            lambda: comparison_document(report),
            lambda: markdown.comparison_markdown(report),
            lambda: html.comparison_html(report),
        )
    return _in_format(
        kind, lambda: run_document(report), lambda: markdown.run_markdown(report), lambda: html.run_html(report)
    )


def _in_format(
    kind: str, document: Callable[[], dict[str, Any]], as_markdown: Callable[[], str], as_html: Callable[[], str]
) -> str:
    if kind == JSON:
        return json.dumps(document(), indent=1) + "\n"
    return as_markdown() if kind == MARKDOWN else as_html()


def destinations(into: str, default: Path, formats: Sequence[str]) -> dict[str, Path]:
    """Return the file of each format. `default`: where it goes without --into, with no suffix.

    `into` is a directory, one that exists or ends with a slash, or a file, for one format alone. Raises UsageError.
    """
    if not into:
        return {kind: default.with_name(f"{default.name}.{kind}") for kind in formats}
    path = Path(into)
    if into.endswith("/") or path.is_dir():
        return {kind: path / f"{default.name}.{kind}" for kind in formats}
    if len(formats) > 1:
        raise UsageError("--into", into, "must be a directory (with a / at its end) for more than one file")
    return {formats[0]: path}


def write(path: Path, text: str) -> None:
    """Write a file of a report, and the directory above it. Raises DeepcdkError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise DeepcdkError(
            f"the report cannot be written: {error.strerror}", where=str(path), remedy="give another place with --into"
        ) from None
