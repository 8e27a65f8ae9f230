"""Keep the results of all benchmarks in figures.json, and write the tables in docs/figures.md and docs/tuning.md.

    python -m benchmarks.figures    writes only the tables

`results` has the newest result of each measurement: its values, and the date, commit, machine and versions. `rows` are
the rows of the tables, each with its page and the results that it shows.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.hardware.machine import Machine, this_machine
from benchmarks.clouds import output_of
from cluster import demo

FILE: Final = "benchmarks/figures.json"
PAGES: Final = ("docs/figures.md", "docs/tuning.md")


def keep(
    results: Mapping[str, Sequence[float]],
    *,
    machine: Machine | None = None,
    versions: Mapping[str, str] | None = None,
    root: Path = demo.ROOT,
) -> list[str]:
    """Store the results of measurements by name in FILE, as made now on this machine, and write the tables in PAGES.

    Return the figures of these results that miss their limit.

    Each result is one value, or the lowest and the highest of several, or the median, the lowest and the highest.
    `machine`: its state before the measurement, by default the current one. `versions`: those of the programs measured.
    """
    file = root / FILE
    document = json.loads(file.read_text())
    made = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": output_of(["git", "rev-parse", "--short", "HEAD"]).strip(),
        "machine": str(machine or this_machine()),
    }
    if versions:
        made["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    for name, values in results.items():
        document["results"][name] = {"values": [round(value, 3) for value in values], **made}
    lines = (f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in document["results"].items())
    rows = (f"  {json.dumps(row, ensure_ascii=False)}" for row in document["rows"])
    text = '{{\n "results": {{\n{}\n }},\n "rows": [\n{}\n ]\n}}\n'
    file.write_text(text.format(",\n".join(lines), ",\n".join(rows)))
    for page in PAGES:
        (root / page).write_text(with_table((root / page).read_text(), document, page))
    changed = [row for row in document["rows"] if results.keys() & set(row["results"])]
    return [row["figure"] for row in changed if missed(row, [document["results"][name] for name in row["results"]])]


def missed(row: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a row's results miss its limit.

    A limit is a number that the first result must not exceed, "at least" and a number, or "faster" than the second one.
    A number may be followed by " s", "%" or " points". Other texts, such as "at most 2 s later", are not checked here:
    the benchmark checks them. The median counts if it is known; otherwise the worst value does.
    """
    values = results[0]["values"][: 1 if len(results[0]["values"]) == 3 else None]
    if row["limit"] == "faster":
        return bool(values >= results[1]["values"])
    bound = re.fullmatch(r"(at least )?([\d.]+)(?: s|%| points)?", row["limit"])
    if not bound:
        return False
    return bool(min(values) < float(bound[2]) if bound[1] else max(values) > float(bound[2]))


def table(rows: Sequence[Mapping[str, Any]], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return rows as a table in Markdown. Date and machine of a row are those of its oldest result."""
    lines = ["| figure | measured | limit | date | machine |", "|---|---|---|---|---|"]
    for row in rows:
        own = [results[name] for name in row["results"]]
        shown = ", ".join(_shown([f"{value:.{row['decimals']}f}" for value in each["values"]], row) for each in own)
        oldest = min(own, key=lambda each: str(each["date"]))
        limit = row["limit"] + (": **missed**" if missed(row, own) else "")
        where = "; ".join(filter(None, [oldest["machine"], oldest.get("versions")]))
        lines.append(f"| {row['figure']} | {shown} | {limit} | {oldest['date']} | {where} |")
    return "\n".join(lines)


def _shown(values: Sequence[str], row: Mapping[str, Any]) -> str:
    if len(values) == 3:
        return f"{values[0]}{row['unit']} ({values[1]} to {values[2]})"
    return " to ".join(values) + str(row["unit"])


def with_table(text: str, document: Mapping[str, Any], page: str) -> str:
    """Return the text of a page with a new table between its two marks, from the results and rows in `document`.

    Rows of other pages, and rows with a result that was not measured, are left out. Raises ValueError if the text lacks
    the marks.
    """
    rows = [
        row for row in document["rows"] if row["page"] == page and document["results"].keys() >= set(row["results"])
    ]
    changed, count = re.subn(
        r"(?s)(<!-- figures: python -m benchmarks\.figures -->\n).*(<!-- end -->)",
        lambda found: f"{found[1]}\n{table(rows, document['results'])}\n\n{found[2]}",
        text,
    )
    if count != 1:
        raise ValueError(f"{page} must contain the marks `<!-- figures: ... -->` and `<!-- end -->` once; restore them")
    return changed


if __name__ == "__main__":
    keep({})
