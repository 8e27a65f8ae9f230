"""Facts about the tables of a benchmark."""

from __future__ import annotations

from pathlib import Path

from cluster.bench.bench_tables import tables
from cluster.bench.measurements import read_bench
from payload.settings.bench import TRAINING
from tests.cluster.bench.benches import event, feeding, scaling, written


def test_each_cell_is_a_row_with_its_figures(tmp_path: Path) -> None:
    training, sums = tables(scaling(tmp_path))
    assert training.rows[1] == ("lenet", "32", "2", "2", "581.8", "90.9%", "110 ms", "4.0%")
    assert sums.rows[1] == ("1,048,576", "4", "4", "20,000", "0.052", "0.079", "4.0%")


def test_without_sums_there_is_no_table_of_them(tmp_path: Path) -> None:
    (only,) = tables(read_bench(written(tmp_path, [event(TRAINING, 1, (0.1, 0.1))])))
    assert "training" in only.title


def test_what_feeds_the_training_has_tables_of_its_own(tmp_path: Path) -> None:
    images, files = tables(feeding(tmp_path))
    assert images.rows[1] == ("224", "2", "2", "1,024", "512", "10.0%")
    assert files.rows[0] == ("shared", "read", "1", "1", "21", "21", "10.0%")
    assert files.rows[3] == ("shared", "write", "2", "1", "13", "7", "10.0%")
