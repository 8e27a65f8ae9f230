"""The security guide's promises: each line that says what is defended names tests, and those tests exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
GUIDE: Final = ROOT / "docs" / "security.md"
NAMED: Final = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def defended_lines() -> list[str]:
    """Return the rows of the guide's tables of what is defended."""
    tables = re.findall(r"^\| defended \| test \|\n\|---\|---\|\n((?:\|.*\n)+)", GUIDE.read_text(), flags=re.MULTILINE)
    return [line for table in tables for line in table.splitlines()]


def test_each_defended_line_names_its_test() -> None:
    lines = defended_lines()
    assert len(lines) >= 15
    assert [line for line in lines if not NAMED.search(line.rsplit("|", 2)[1])] == []


@pytest.mark.parametrize("named", sorted(set(NAMED.findall(GUIDE.read_text()))), ids="::".join)
def test_each_test_that_is_named_exists(named: tuple[str, str]) -> None:
    path, name = named
    functions = [node for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert name in [function.name for function in functions]
