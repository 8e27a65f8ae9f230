"""The benchmark of images per second on one machine: cells, their processes, and the table."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.hardware.placement import ONEDNN
from payload.bench import __main__ as benchmark
from payload.bench.network_cell import Cell

ROOT = Path(__file__).resolve().parents[3]
CELL = benchmark.parse(["--networks", "lenet", "--batch-sizes", "4"]).cells()[0]
PRINTED = {"step_seconds": [0.25, 0.75, 0.5], "cores_used": 1.934, "peak_memory_mib": 99.6, "parameters": 431_080}
SLOWER = {**PRINTED, "step_seconds": [1.0, 1.0, 1.0]}

Answer = Callable[[dict[str, Any]], dict[str, Any] | int | BaseException]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """Let the process of a cell print figures, exit with a status, or raise."""

    def answer_with(answer: Answer) -> None:
        def run(command: list[str], **options: Any) -> Any:
            found = answer(json.loads(command[-1]))
            if isinstance(found, BaseException):
                raise found
            if isinstance(found, int):
                return subprocess.CompletedProcess(command, found, "", "Traceback\nValueError: no\n\n")
            return subprocess.CompletedProcess(command, 0, f"a greeting\n{json.dumps(found)}\n", "")

        monkeypatch.setattr(subprocess, "run", run)

    return answer_with


def figures(variant: str = "tuned", batch_size: int = 32, **values: Any) -> dict[str, Any]:
    cell = dataclasses.replace(CELL, network="resnet50", batch_size=batch_size, image_size=224, variant=variant)
    return {**dataclasses.asdict(cell), "images_per_s": 6.4, **PRINTED, **values}


def test_default_cells_match_the_source() -> None:
    cells = benchmark.parse([]).cells()
    assert len(cells) == 6 * 5
    assert {cell.image_size for cell in cells} == {224, 299}
    assert {(cell.mode, cell.variant) for cell in cells} == {("training", "tuned")}


def test_flags_reach_the_cells_and_variants_are_side_by_side() -> None:
    argv = [
        "--networks",
        "lenet, vgg16",
        "--batch-sizes",
        "1,8,8",
        "--image-size",
        "64",
        "--steps=5",
        "--mode=inference",
    ]
    compared = ["--compare-tuned", "--compare-onednn"]
    cells = benchmark.parse([*argv, *compared, "--steps=5", "--mode=inference"]).cells()
    assert [(cell.network, cell.batch_size) for cell in cells[::3]] == [
        *(("lenet", 1), ("lenet", 8), ("vgg16", 1), ("vgg16", 8)),
    ]
    assert [cell.variant for cell in cells[:3]] == ["tuned", "stock", "onednn-off"]
    assert {(c.image_size, c.steps, c.mode) for c in cells} == {(64, 5, "inference")}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--batch-sizes", "1,x"], "--batch-sizes: must be whole numbers"),
        (["--batch-sizes", "0"], "--batch-sizes 0: must be 1 to 65536"),
        (["--cell-timeout-s", "nan"], "--cell-timeout-s: must be a number"),
        (["--mode", "both"], "--mode both: must be one of training, inference"),
        (["--bacth-sizes", "1"], "argument --bacth-sizes: unknown; did you mean --batch-sizes?"),
        (["--networks", "resnet50,inception3"], "inception3: must be one of .*; did you mean inception-v3?"),
        (["--networks", "inception-v3", "--image-size", "64"], "inception-v3 needs at least 75 x 75"),
    ],
)
def test_wrong_arguments_are_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert benchmark.main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("payload.bench: error: ")
    assert all(part in error for part in message.split(".*"))
    assert error.count("\n") == 1


def test_help_does_not_import_tensorflow() -> None:
    program = "import sys, payload.bench.__main__; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_environment_does_not_change_onednn() -> None:
    environ = {ONEDNN: "1", "HOME": "/h"}
    assert benchmark.cell_environment(CELL, environ) == {"HOME": "/h", benchmark.LOG_LEVEL: "2"}
    assert benchmark.cell_environment(dataclasses.replace(CELL, variant="onednn-off"), environ)[ONEDNN] == "0"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (-9, "killed, probably because it ran out of memory; use smaller --batch-sizes"),
        (-11, "terminated by SIGSEGV"),
        (1, "exit status 1: ValueError: no"),
        (
            subprocess.TimeoutExpired("cell", 10),
            "timed out after 10 s; use fewer --steps, or a larger --cell-timeout-s",
        ),
        ({"step_seconds": []}, "its process printed no valid result, but:"),
        ({"step_seconds": 3}, "its process printed no valid result, but:"),
    ],
)
def test_failed_process_is_a_reason(answering: Callable[[Answer], None], answer: Any, reason: str) -> None:
    answering(lambda cell: answer)
    assert benchmark.run_cell(CELL, {}, 10)["failure"].startswith(reason)


def test_failed_cell_leaves_the_others(
    answering: Callable[[Answer], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answering(lambda cell: -9 if cell["batch_size"] == 8 else PRINTED)
    path = tmp_path / "figures.json"
    assert benchmark.main(["--networks", "lenet", "--batch-sizes", "4,8,16", "--json", str(path)]) == 1
    output = capsys.readouterr()
    assert [line.split()[3] for line in output.out.splitlines()[2:5]] == ["8", "failed", "32"]
    assert "3 of 3: lenet, batch 16: 32 images/s" in output.err
    document = json.loads(path.read_text())
    assert [cell["images_per_s"] for cell in document["cells"]] == [8, None, 32]
    assert document["machine"]["cores"] > 0


def test_unwritable_file_is_status_1_and_interruption_prints_what_was_measured(
    answering: Callable[[Answer], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answering(lambda cell: KeyboardInterrupt() if cell["batch_size"] == 8 else PRINTED)
    argv = ["--networks", "lenet", "--batch-sizes", "4,8"]
    assert benchmark.main(argv) == 130
    assert capsys.readouterr().out.splitlines()[-1].split()[:4] == ["lenet", "4", "28", "8"]
    assert benchmark.main([*argv, "--json", str(tmp_path / "absent" / "f.json")]) == 1
    output = capsys.readouterr()
    assert ("absent/f.json" in output.err, "lenet" in output.out) == (True, True)


def test_table_has_a_row_for_each_cell() -> None:
    assert benchmark.table([figures(batch_size=1, images_per_s=0.125), figures()]).splitlines() == [
        "network   batch  pixels  images/s  step ms  spread  cores  MiB",
        "resnet50      1     224     0.125    500.0    100%   1.93  100",
        "resnet50     32     224       6.4    500.0    100%   1.93  100",
    ]
    assert len(benchmark.table([]).splitlines()) == 1


def test_comparisons_are_ratios_beside_their_cell_or_open() -> None:
    failed = {**figures("onednn-off"), "failure": "killed"}
    other = figures("stock", batch_size=1, images_per_s=3.2)
    lines = benchmark.table([figures(), failed, figures(batch_size=1), other]).splitlines()
    assert lines[0].endswith("  MiB  stock  cores stock  ratio  oneDNN off  cores off  ratio")
    assert lines[1].split()[-6:] == ["-", "-", "-", "failed", "-", "-"]
    assert lines[2].split()[-6:] == ["3.2", "1.93", "2.00", "-", "-", "-"]
    assert lines[3] == "resnet50, batch 32, oneDNN off: killed"


@pytest.mark.tensorflow
def test_lenet_is_measured_with_chosen_and_default_threads(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    argv = ["--networks", "lenet", "--batch-sizes", "4", "--image-size", "32", "--steps", "3", "--warmup-steps", "1"]
    assert benchmark.main([*argv, "--compare-tuned", "--mode", "inference", "--json", str(path)]) == 0
    cells = json.loads(path.read_text())["cells"]
    assert "intra-op" in cells[0]["chosen"] and cells[1]["chosen"] == "TensorFlow's defaults"
    for cell in cells:
        # At 32 pixels, 5 x 5 values of each of the 50 filters reach the first dense layer; at 28 pixels only 4 x 4.
        assert cell["parameters"] == 431_080 + (5 * 5 - 4 * 4) * 50 * 500
        assert len(cell["step_seconds"]) == 3 and min(cell["step_seconds"]) > 0
        assert cell["cores_used"] > 0 and cell["peak_memory_mib"] > 50


@pytest.mark.tensorflow
def test_training_step_of_a_cell_is_timed() -> None:
    from payload.bench.network_cell import measure

    cell = Cell(**{**dataclasses.asdict(CELL), "variant": "stock", "steps": 2, "warmup_steps": 1})
    assert len(measure(cell)["step_seconds"]) == 2
