"""Results of benchmarks are stored in one file, and the table in docs/figures.md is written from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agent.hardware.machine import this_machine
from benchmarks import figures, peers, promises
from benchmarks.figures import FILE, PAGES, keep, missed, table, with_table
from cluster.demo import ROOT


@pytest.mark.parametrize("page", PAGES)
def test_each_page_shows_the_table_of_its_file(page: str) -> None:
    text = (ROOT / page).read_text()
    assert text == with_table(text, json.loads((ROOT / FILE).read_text()), page), "run python -m benchmarks.figures"


def test_new_result_replaces_the_old_one_in_file_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (FILE, *PAGES):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(figures, "output_of", lambda _: "0123abcd\n")
    assert keep({}, root=tmp_path) == []
    for name in (FILE, *PAGES):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text()
    given: dict[str, list[float]] = {"fab --list": [9.87654], "not in the table": [1.0, 2.0]}
    assert keep(given, versions={"fab": "0.1.0"}, root=tmp_path) == ["`fab --list`"]
    results = json.loads((tmp_path / FILE).read_text())["results"]
    assert (results["fab --list"]["values"], results["fab --list"]["commit"]) == ([9.877], "0123abcd")
    assert results["not in the table"]["values"] == [1.0, 2.0]
    row = f"| `fab --list` | 9.88 s | 0.7 s: **missed** | {results['fab --list']['date']} | "
    assert f"{row}{this_machine().processor}" in (text := (tmp_path / PAGES[0]).read_text())
    assert "; fab 0.1.0 |" in text


def test_ranges_pairs_and_exceeded_limits_are_shown_with_oldest_date() -> None:
    results = {
        "ours": {"values": [2.0, 2.5], "date": "2026-11-22", "machine": "new"},
        "theirs": {"values": [1.26], "date": "2026-11-21", "machine": "old"},
    }
    row = {"figure": "push", "results": ["ours", "theirs"], "unit": " s", "decimals": 1, "limit": "faster"}
    assert table([row, {**row, "results": ["theirs", "ours"]}], results).splitlines()[2:] == [
        "| push | 2.0 to 2.5 s, 1.3 s | faster: **missed** | 2026-11-21 | old |",
        "| push | 1.3 s, 2.0 to 2.5 s | faster | 2026-11-21 | old |",
    ]


@pytest.mark.parametrize(
    ("limit", "values", "is_missed"),
    [
        ("at least 0.9", [0.89, 0.8, 0.95], True),
        ("at least 0.9", [0.9, 0.8, 0.95], False),
        ("0.9", [0.9, 0.8, 0.95], False),
        ("0.9", [0.9, 0.95], True),
        ("", [0.9], False),
    ],
)
def test_limit_applies_to_known_median(limit: str, values: list[float], is_missed: bool) -> None:
    assert missed({"limit": limit}, [{"values": values}]) == is_missed


def test_median_is_shown_with_its_range() -> None:
    row = {"figure": "speed", "results": ["ours"], "unit": " GB/s", "decimals": 2, "limit": "at least 1.3"}
    results = {"ours": {"values": [1.25, 1.0, 1.5], "date": "2026-11-22", "machine": "new", "versions": "TensorFlow 2"}}
    shown = "| speed | 1.25 GB/s (1.00 to 1.50) | at least 1.3: **missed** | 2026-11-22 | new; TensorFlow 2 |"
    assert table([row], results).splitlines()[2:] == [shown]


def test_page_without_markers_is_rejected() -> None:
    with pytest.raises(ValueError, match="must contain the marks"):
        with_table("# Figures\n", {"results": {}, "rows": []}, PAGES[0])


def test_measurements_of_all_clusters_are_stored_as_a_range() -> None:
    names = [measure.name for measure in promises.measures()]
    medians = {name: float(number) for number, name in enumerate(names)}
    synths = [medians[name] for name in names if name.startswith("cdk synth, warm: ")]
    stored = promises.results(medians)
    assert stored["cdk synth, warm"] == [min(synths), max(synths)]
    assert stored["fab status"] == [medians["fab status"]]
    assert set(stored) <= set(json.loads((ROOT / FILE).read_text())["results"])
    del medians[next(name for name in names if name.startswith("cdk synth, warm: "))]
    assert "cdk synth, warm" not in promises.results(medians)


def test_starts_of_other_tools_are_measured_in_turns_and_stored_with_their_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".peers-ray").mkdir()
    (tmp_path / ".peers-ray" / peers.PACKAGES["ray"]).touch()
    installed: list[str] = []
    started: list[str] = []
    stored: dict[str, list[float]] = {}

    def start(command: list[str]) -> float:
        started.append(Path(command[0]).name)
        return float(len(started))

    def install(command: list[str]) -> None:
        if command[1] == "venv":
            Path(command[-1]).mkdir()
        else:
            installed.append(command[-1])

    def store(results: dict[str, list[float]], versions: dict[str, str]) -> None:
        stored.update(results)
        assert versions["skypilot"] == peers.PACKAGES["sky"].partition("==")[2]

    monkeypatch.setattr("cluster.demo.ROOT", tmp_path)
    monkeypatch.setattr(peers, "output_of", install)
    monkeypatch.setattr(promises, "seconds", start)
    monkeypatch.setattr(figures, "keep", store)
    assert promises.main(["--peers", "--repeat", "3"]) == 0
    tools = ["fab", *promises.PEERS]
    assert started == tools * 4
    assert stored["start: fab"] == [11, 6, 16], "the first round is not recorded"
    assert installed == [peers.PACKAGES[tool] for tool in promises.PEERS if tool != "ray"]
