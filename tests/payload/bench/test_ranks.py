"""Measuring a cluster: figures of real ranks, earlier measurements, and detecting a slower step."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.errors import ReportedError
from agent.files.atomic_write import StorageError
from cluster.bench.bench_comparison import compare
from cluster.bench.measurements import read_bench
from payload.bench import ranks
from payload.settings.bench import BENCH_FILE, TRAINING, BenchSettings, Cell

LAUNCHER = [sys.executable, "-m", "agent.launch.horovodrun", "-np", "2", "-H", "localhost:1,127.0.0.1:1", "--gloo"]
PROGRAM = [sys.executable, "-m", "payload.bench.ranks"]
TINY = BenchSettings(
    nodes=(1,),
    networks=("lenet",),
    batch_sizes=(1,),
    image_size=16,
    message_bytes=(),
    repeats=2,
    steps=2,
    input_size=0,
    storage_mib=0,
)

LENET = Cell(kind=TRAINING, network="lenet", batch_per_rank=8, nodes=1)


def test_too_few_nodes_are_reported_before_measuring() -> None:
    settings = BenchSettings(nodes=(1, 4))
    assert ranks.ranks_of(settings, {"HOROVOD_SIZE": "8", "HOROVOD_LOCAL_SIZE": "2"}) == {1: 2, 4: 8}
    for size, per_node in (("2", "1"), ("9", "2")):
        with pytest.raises(ReportedError, match=f"needs 4 nodes .* has {size} ranks, {per_node} of them on this node"):
            ranks.ranks_of(settings, {"HOROVOD_SIZE": size, "HOROVOD_LOCAL_SIZE": per_node})


def test_unsupported_image_sizes_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--run-dir", str(tmp_path), "--networks", "resnet50", "--image-size", "16"]
    assert ranks.main(argv) == 1
    assert "resnet50 needs at least 32 x 32" in capsys.readouterr().err


@pytest.mark.tensorflow
def test_only_missing_cells_are_measured(tmp_path: Path) -> None:
    number, cell = TINY.rounds()[0]
    ranks.append_cell(tmp_path, number, cell, ranks=1, seconds=0.1)
    argv = [*PROGRAM, "--run-dir", str(tmp_path), *TINY.arguments(), "--resume"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "1 of 1, round 2: lenet, 1 images of 16 pixels a rank, 1 node" in done.stdout
    assert ranks.measured(tmp_path) == set(TINY.rounds())
    (measured,) = read_bench(tmp_path).measurements
    assert len(measured.seconds) == 2
    assert measured.images_per_s > 0


@pytest.mark.tensorflow
@pytest.mark.horovod
def test_cell_on_one_of_two_nodes_uses_only_its_ranks(tmp_path: Path) -> None:
    argv = ["--run-dir", str(tmp_path), "--nodes", "1,2", "--networks", "lenet", "--batch-sizes", "1"]
    sizes = ["--message-bytes", "1024", "--repeats", "2", "--steps", "2", "--image-size", "16"]
    sizes += ["--input-size", "16", "--storage-mib", "1"]
    subprocess.run([*LAUNCHER, *PROGRAM, *argv, *sizes], capture_output=True, text=True, check=True)
    bench = read_bench(tmp_path)
    assert not list(tmp_path.glob(".bench-*"))
    assert [(str(each.cell), each.ranks, len(each.seconds)) for each in bench.measurements] == [
        ("allreduce of 1,024 bytes, 2 nodes", 2, 2),
        ("input, 256 images to 16 pixels a rank, 1 node", 1, 2),
        ("input, 256 images to 16 pixels a rank, 2 nodes", 2, 2),
        ("read 1,048,576 bytes a node, local, 1 node", 1, 2),
        ("read 1,048,576 bytes a node, local, 2 nodes", 2, 2),
        ("read 1,048,576 bytes a node, shared, 1 node", 1, 2),
        ("read 1,048,576 bytes a node, shared, 2 nodes", 2, 2),
        ("lenet, 1 images of 16 pixels a rank, 1 node", 1, 2),
        ("lenet, 1 images of 16 pixels a rank, 2 nodes", 2, 2),
        ("write 1,048,576 bytes a node, local, 1 node", 1, 2),
        ("write 1,048,576 bytes a node, local, 2 nodes", 2, 2),
        ("write 1,048,576 bytes a node, shared, 1 node", 1, 2),
        ("write 1,048,576 bytes a node, shared, 2 nodes", 2, 2),
    ]
    assert len(bench.origin["hosts"]) == 2


@pytest.mark.tensorflow
def test_layers_of_a_cell_compute_in_its_precision() -> None:
    bench = BenchSettings(nodes=(1,), networks=("lenet",), precisions=("float32", "bfloat16"), image_size=16)
    steps = ranks.Steps(bench, Path("/nowhere"))
    for cell in (each for each in bench.cells() if each.kind == TRAINING):
        model, _ = steps._model(ranks.settings_of(cell, bench), (16, 16, 1))
        assert cell.precision in {layer.compute_dtype for layer in model.layers}
        assert {weight.dtype for weight in model.trainable_weights} == {"float32"}


@pytest.mark.tensorflow
def test_steps_slower_by_a_fifth_are_found_and_equal_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from payload.training import distributed

    distributed.join()
    bench = BenchSettings(
        nodes=(1,),
        networks=("lenet",),
        batch_sizes=(1,),
        message_bytes=(),
        repeats=3,
        steps=5,
        input_size=0,
        storage_mib=0,
    )

    def measured(name: str, step_s: float) -> Path:
        monkeypatch.setattr(ranks.Steps, "_training", lambda self, cell, ranks: lambda: time.sleep(step_s))
        steps = ranks.Steps(bench, tmp_path)
        for number, cell in bench.rounds():
            ranks.append_cell(tmp_path / name, number, cell, ranks=1, seconds=steps.seconds(cell, 1))
        return tmp_path / name

    first, same, slower = (read_bench(measured(name, step_s)) for name, step_s in (("a", 0.1), ("b", 0.1), ("c", 0.12)))
    assert compare(same, first).significant == ()
    (found,) = compare(slower, first).significant
    assert found.change == pytest.approx(0.2, abs=0.05)


def test_measurements_are_read_after_crash_within_a_line(tmp_path: Path) -> None:
    assert ranks.measured(tmp_path / "run") == set()
    ranks.append(tmp_path / "run", {"type": "origin"})
    ranks.append_cell(tmp_path / "run", 0, LENET, ranks=1, seconds=0.5)
    path = tmp_path / "run" / BENCH_FILE
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines()[-1][:-9])
    ranks.append_cell(tmp_path / "run", 1, LENET, ranks=1, seconds=0.4)
    assert ranks.measured(tmp_path / "run") == {(0, LENET), (1, LENET)}
    assert len(path.read_text().splitlines()) == 4


def test_results_that_cannot_be_stored_are_reported(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(StorageError, match=r"cannot write .*bench\.jsonl"):
        ranks.append(tmp_path / "run", {"type": "origin"})
