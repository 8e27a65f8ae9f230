"""The benchmark of training: its small form, what it stores, and failing processes."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import figures, training
from benchmarks.figures import FILE
from benchmarks.training import CASES, Process, measure, results, run, speed, take
from cluster.demo import ROOT

CASE = dataclasses.replace(CASES["LeNet"], chunks=3)


def times(seconds: float, *, ranks: int = 2, total: float = 3.0, others: float = 0.0, core: int = 0) -> dict[str, Any]:
    """Return the times of a process that uses half of its core, while others use a part of it in the first chunk."""
    chunks = [[seconds * (3 if number == 0 else 1), 0.5 + (number == 0) * others, 0.5] for number in range(3)]
    return {"chunks": chunks, "cores": [core], "ranks": ranks, "sum": total}


def test_speeds_of_processes_are_added() -> None:
    assert speed("mpi", CASE, [times(0.5), times(0.25, core=1)], 0.1) == 256 / 0.5 + 256 / 0.25
    assert speed("one", CASE, [times(0.5, ranks=1)], 0.1) == 512


def test_disturbed_steps_are_ignored() -> None:
    two = dataclasses.replace(CASE, chunks=2)
    disturbed = [
        {**times(0.5, others=0.3, core=core), "chunks": times(0.5, others=0.3)["chunks"][:2]} for core in (0, 1)
    ]
    assert speed("mpi", two, disturbed, 0.1) == 1024
    assert speed("mpi", two, disturbed, math.inf) == 512
    only = [{**each, "chunks": each["chunks"][:1]} for each in disturbed]
    assert speed("mpi", dataclasses.replace(CASE, chunks=1), only, 0.1) is None


def test_ranks_on_the_same_cores_do_not_disturb_each_other() -> None:
    both = [{**times(0.5), "cores": [0, 1], "chunks": [[0.5, 2.0, 1.0]] * 3} for _ in range(2)]
    assert speed("horovodrun", CASE, both, 0.1) == 1024


@pytest.mark.parametrize(
    ("way", "found"),
    [
        ("mpi", [times(0.5)]),
        ("mpi", [times(0.5), times(0.5, ranks=1)]),
        ("mpi", [times(0.5), times(0.5, total=2.0)]),
        ("mpi", [times(0.5), {**times(0.5), "chunks": []}]),
        ("one", [times(0.5, ranks=1), times(0.5, ranks=1)]),
    ],
)
def test_ranks_without_common_training_have_no_speed(way: str, found: list[dict[str, Any]]) -> None:
    with pytest.raises(RuntimeError, match=f"{way}: "):
        speed(way, CASE, found, 0.1)


def test_failed_process_fails_benchmark_and_stops_the_other(tmp_path: Path) -> None:
    sleeping = Process(command=(sys.executable, "-c", "import time; time.sleep(600)"))
    failing = Process(command=(sys.executable, "-c", "print('out of order'); raise SystemExit(3)"))
    with pytest.raises(RuntimeError, match=r"exit status \[None, 3\] .*\n*out of order"):
        run([sleeping, failing], tmp_path)


def test_nothing_is_stored_when_a_rank_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[object] = []
    monkeypatch.setattr(figures, "keep", lambda *_, **__: stored.append(1))
    monkeypatch.setattr(
        training, "processes", lambda *_: [Process(command=(sys.executable, "-c", "import os; os.abort()"))]
    )
    with pytest.raises(RuntimeError, match=r"exit status \[-6\]"):
        training.main(["--cases", "allreduce"])
    assert not stored


def test_ratio_is_computed_within_a_round() -> None:
    rounds = [{"mpi": 9.0, "tcp": 10.0}, {"mpi": 4.0, "tcp": 5.0}, {"mpi": 19.0, "tcp": 20.0}]
    found = results("allreduce", CASES["allreduce"], rounds)
    assert found["allreduce, mpi"] == [9.0, 4.0, 19.0]
    assert found["allreduce, mpi / tcp"] == [0.9, 0.8, 0.95]
    assert "allreduce, gloo / tcp" not in found


@pytest.mark.parametrize(("rounds", "shown"), [(1, "2"), (3, "2 (2 to 2)")])
def test_any_number_of_rounds_is_printed(
    rounds: int, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "measure", lambda *_: (2.0, {}))
    take("program", CASES["program"], rounds, False)
    assert f"program, launcher {shown}" in [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_page_shows_only_results_of_the_benchmark() -> None:
    rows = [row for row in json.loads((ROOT / FILE).read_text())["rows"] if row["page"] == "docs/tuning.md"]
    made = {key for name, case in CASES.items() for key in results(name, case, [dict.fromkeys(case.ways, 1.0)])}
    assert {name for row in rows for name in row["results"]} <= made


@pytest.mark.full
@pytest.mark.horovod
@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["LeNet", "allreduce", "program"])
def test_short_round_measures_plausible_speeds(name: str) -> None:
    case = CASES[name].shortened()
    low, high = {"LeNet": (50, 1e6), "allreduce": (0.005, 100), "program": (5, 1e6)}[name]
    for way in set(case.ways) - {"ddp"}:
        found, _ = measure(way, case, quiet=False)
        assert low < found < high, way
