"""The results of a benchmark: tables, JSON and a plot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.bench.measurements import read_bench
from cluster.bench.results import document, tables, write_results
from cluster.errors import DeepcdkError
from payload.settings.bench import TRAINING
from tests.cluster.bench.benches import event, feeding, scaling, written


def test_each_cell_is_a_row_with_its_figures(tmp_path: Path) -> None:
    training, sums = tables(scaling(tmp_path))
    assert training.rows[1] == ("lenet", "32", "2", "2", "581.8", "90.9%", "110 ms", "4.0%")
    assert sums.rows[1] == ("1,048,576", "4", "4", "20,000", "0.052", "0.079", "4.0%")
    images, files = tables(feeding(tmp_path / "bench"))
    assert images.rows[1] == ("224", "2", "2", "1,024", "512", "10.0%")
    assert files.rows[0] == ("shared", "read", "1", "1", "21", "21", "10.0%")
    assert files.rows[3] == ("shared", "write", "2", "1", "13", "7", "10.0%")
    (only,) = tables(read_bench(written(tmp_path, [event(TRAINING, 1, (0.1, 0.1))], "one")))
    assert "training" in only.title


def test_json_has_the_figures_of_each_kind(tmp_path: Path) -> None:
    found = document(scaling(tmp_path)) | {
        name: rows for name, rows in document(feeding(tmp_path / "bench")).items() if name in ("input", "storage")
    }
    assert [row["efficiency"] for row in found["training"]] == pytest.approx([1.0, 1 / 1.1, 1 / 1.3])
    assert found["training"][0].keys() >= {"network", "precision", "batch_per_rank", "image_size", "images_per_s"}
    assert found["allreduce"][0]["bus_bytes_per_s"] == pytest.approx(1048576 / 0.01)
    assert found["input"][0]["images_per_s"] == pytest.approx(512)
    assert (found["storage"][0]["operation"], found["storage"][0]["bytes_per_s"]) == ("read", 1048576 / 0.05)
    assert found["storage"][0]["rounds_s"] == pytest.approx([0.05, 0.05, 0.055])


def test_both_files_are_written_and_overwritten(tmp_path: Path) -> None:
    bench = scaling(tmp_path)
    for _ in range(2):
        path, picture = write_results(tmp_path / "bench", bench)
    assert json.loads(path.read_text()) == json.loads(json.dumps(document(bench)))
    assert picture.read_bytes().startswith(b"\x89PNG")
    path.unlink()
    path.mkdir()
    with pytest.raises(DeepcdkError, match=r"cannot write .*bench\.json"):
        write_results(tmp_path / "bench", bench)
