"""The confusion matrix as files of a run: confusion.json and confusion.png."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import replace_file
from payload.training.reporting.confusion import Confusion
from payload.training.reporting.confusion_picture import draw

CONFUSION_FILE: Final = "confusion.json"
PICTURE_FILE: Final = "confusion.png"


def write_confusion(run_dir: Path, confusion: Confusion) -> None:
    """Write confusion.json and confusion.png. Raises StorageError."""
    replace_file(run_dir / CONFUSION_FILE, _json(confusion.document()).encode())
    replace_file(run_dir / PICTURE_FILE, draw(confusion))


def _json(document: dict[str, Any]) -> str:
    """Write JSON with a line for each key, and for each row of the counts."""
    counts = ",\n  ".join(json.dumps(row) for row in document["counts"])
    rest = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items() if key != "counts"]
    return "{\n" + ",\n".join([*rest, f' "counts": [\n  {counts}\n ]']) + "\n}\n"
