"""Keep the results of all benchmarks in figures.json, and write the table in docs/figures.md.

    python -m benchmarks.figures    writes only the table

`results` has the newest result of each measurement: its values, and the date, commit and machine. `rows` are the rows
of the table, each with the results that it shows.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.hardware.machine import this_machine
from benchmarks.measure import output_of
from cluster import demo

FILE: Final = Path(__file__).with_name("figures.json")
PAGE: Final = demo.ROOT / "docs" / "figures.md"


def keep(results: Mapping[str, Sequence[float]], file: Path = FILE, page: Path = PAGE) -> None:
    """Store the results of measurements by name, as made today on this machine, and write the table in the page.

    Each result is one value, or the lowest and the highest of several.
    """
    document = json.loads(file.read_text())
    commit = output_of(["git", "rev-parse", "--short", "HEAD"]).strip()
    machine = str(this_machine())
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    for name, values in results.items():
        rounded = [round(value, 3) for value in values]
        document["results"][name] = {"values": rounded, "date": date, "commit": commit, "machine": machine}
    lines = (f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in document["results"].items())
    rows = (f"  {json.dumps(row, ensure_ascii=False)}" for row in document["rows"])
    text = '{{\n "results": {{\n{}\n }},\n "rows": [\n{}\n ]\n}}\n'
    file.write_text(text.format(",\n".join(lines), ",\n".join(rows)))
    page.write_text(with_table(page.read_text(), document))


def table(document: Mapping[str, Any]) -> str:
    """Return the rows of a document as a table in Markdown. Date and machine of a row are those of its oldest result.

    A missed limit is marked: a number that the first result exceeds, or "faster" if the second result is faster.
    """
    lines = ["| figure | measured | limit | date | machine |", "|---|---|---|---|---|"]
    for row in document["rows"]:
        results = [document["results"][name] for name in row["results"]]
        shown = ", ".join(
            " to ".join(f"{value:.{row['decimals']}f}" for value in each["values"]) + row["unit"] for each in results
        )
        oldest = min(results, key=lambda each: str(each["date"]))
        missed = row["limit"] == "faster" and results[0]["values"] >= results[1]["values"]
        if bound := re.fullmatch(r"([\d.]+)(?: s| points)?", row["limit"]):
            missed = max(results[0]["values"]) > float(bound[1])
        limit = row["limit"] + (": **missed**" if missed else "")
        lines.append(f"| {row['figure']} | {shown} | {limit} | {oldest['date']} | {oldest['machine']} |")
    return "\n".join(lines)


def with_table(text: str, document: Mapping[str, Any]) -> str:
    """Replace the table in the page's text. Raises ValueError if the page lacks the two marks."""
    changed, count = re.subn(
        r"(?s)(<!-- figures: python -m benchmarks\.figures -->\n).*(<!-- end -->)",
        lambda found: f"{found[1]}\n{table(document)}\n\n{found[2]}",
        text,
    )
    if count != 1:
        raise ValueError(f"{PAGE} must contain the marks `<!-- figures: ... -->` and `<!-- end -->` once; restore them")
    return changed


if __name__ == "__main__":
    keep({})
