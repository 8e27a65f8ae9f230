"""Facts about what a benchmark of a cluster keeps on disk."""

from __future__ import annotations

from pathlib import Path

from payload.benchmark import journal
from payload.settings.bench import BENCH_FILE, TRAINING, Cell

CELL = Cell(kind=TRAINING, network="lenet", batch_per_rank=8, nodes=1)


def test_what_is_measured_is_known_after_a_crash_in_mid_line(tmp_path: Path) -> None:
    assert journal.measured(tmp_path / "run") == set()
    journal.append(tmp_path / "run", {"type": "origin"})
    journal.append_cell(tmp_path / "run", 0, CELL, ranks=1, seconds=0.5)
    path = tmp_path / "run" / BENCH_FILE
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines()[-1][:-9])
    journal.append_cell(tmp_path / "run", 1, CELL, ranks=1, seconds=0.4)
    assert journal.measured(tmp_path / "run") == {(0, CELL), (1, CELL)}
    assert len(path.read_text().splitlines()) == 4
