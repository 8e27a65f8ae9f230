"""Results of benchmarks are stored in one file, and the table in docs/figures.md is written from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import figures, whole_path
from benchmarks.figures import FILE, PAGE, keep, table, with_table


def test_the_page_has_the_table_of_the_file() -> None:
    text = PAGE.read_text()
    assert text == with_table(text, json.loads(FILE.read_text())), "run python -m benchmarks.figures"


def test_a_new_result_replaces_the_old_one_in_file_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, page = (Path(shutil.copy(each, tmp_path)) for each in (FILE, PAGE))
    monkeypatch.setattr(figures, "output_of", lambda _: "0123abcd\n")
    keep({}, file, page)
    assert (file.read_text(), page.read_text()) == (FILE.read_text(), PAGE.read_text())
    keep({"fab --list": [9.87654], "not in the table": [1.0, 2.0]}, file, page)
    results = json.loads(file.read_text())["results"]
    assert (results["fab --list"]["values"], results["fab --list"]["commit"]) == ([9.877], "0123abcd")
    assert results["not in the table"]["values"] == [1.0, 2.0]
    assert f"| `fab --list` | 9.88 s | 0.7 s: **missed** | {results['fab --list']['date']} | " in page.read_text()


def test_ranges_pairs_and_missed_limits_are_shown_with_the_oldest_date() -> None:
    results = {
        "ours": {"values": [2.0, 2.5], "date": "2026-11-22", "machine": "new"},
        "theirs": {"values": [1.26], "date": "2026-11-21", "machine": "old"},
    }
    row = {"figure": "push", "results": ["ours", "theirs"], "unit": " s", "decimals": 1, "limit": "faster"}
    document = {"results": results, "rows": [row, {**row, "results": ["theirs", "ours"]}]}
    assert table(document).splitlines()[2:] == [
        "| push | 2.0 to 2.5 s, 1.3 s | faster: **missed** | 2026-11-21 | old |",
        "| push | 1.3 s, 2.0 to 2.5 s | faster | 2026-11-21 | old |",
    ]


def test_a_page_without_the_marks_is_rejected() -> None:
    with pytest.raises(ValueError, match="must contain the marks"):
        with_table("# Figures\n", {"results": {}, "rows": []})


def test_measurements_of_clusters_are_stored_as_a_range_when_all_were_measured() -> None:
    names = [measure.name for measure in whole_path.measures()]
    medians = {name: float(number) for number, name in enumerate(names)}
    synths = [medians[name] for name in names if name.startswith("cdk synth, warm: ")]
    stored = whole_path.results(medians)
    assert stored["cdk synth, warm"] == [min(synths), max(synths)]
    assert stored["fab status"] == [medians["fab status"]]
    assert set(stored) <= set(json.loads(FILE.read_text())["results"])
    del medians[next(name for name in names if name.startswith("cdk synth, warm: "))]
    assert "cdk synth, warm" not in whole_path.results(medians)
