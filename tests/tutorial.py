"""The commands in docs/tutorial.md, in order, and the cdk.json keys that it sets."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"


def commands(program: str) -> list[list[str]]:
    """Return the words of each command that begins with a program's name."""
    lines = re.findall(r"(?m)^    (\S.*)$", PAGE.read_text(encoding="utf-8"))
    return [words for words in map(shlex.split, lines) if words[0] == program]


def programs() -> set[str]:
    """Return the programs used on the page."""
    return {line.split()[0] for line in re.findall(r"(?m)^    (\S.*)$", PAGE.read_text(encoding="utf-8"))}


def keys() -> dict[str, Any]:
    """Return the keys that the page tells the reader to add to context.cluster in cdk.json."""
    (text,) = re.findall(r"(?s)```json\n(.*?)```", PAGE.read_text(encoding="utf-8"))
    found: dict[str, Any] = json.loads(text)
    return found
