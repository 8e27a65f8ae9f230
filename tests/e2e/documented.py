"""Extract the programs shown in the documentation."""

from __future__ import annotations

import textwrap

from tests.e2e.conftest import ROOT


def program(heading: str, document: str = "docs/scripts.md") -> str:
    """Return the program below a heading: the indented lines starting at its first import."""
    _, found, section = (ROOT / document).read_text().partition(f"\n## {heading}\n")
    assert found, f"{document} has no heading {heading!r}"
    lines = section.partition("\n## ")[0].splitlines()
    code = [line for line in lines if line.startswith("    ") or not line]
    first = next(place for place, line in enumerate(code) if line.startswith("    import "))
    return textwrap.dedent("\n".join(code[first:]))
