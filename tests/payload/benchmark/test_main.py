from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.hardware.threads import ONEDNN
from payload.benchmark import __main__ as benchmark
from payload.benchmark import process
from payload.benchmark.config import BenchmarkConfig, Cell

CELL = BenchmarkConfig.from_argv(["--networks", "lenet", "--batch-sizes", "4"]).cells()[0]
FIGURES = {
    "step_seconds": [0.5, 0.5],
    "first_step_seconds": 1.0,
    "cores_used": 1.0,
    "peak_memory_mib": 100.0,
    "parameters": 431_080,
    "chosen": "",
    "tensorflow": "2.21.0",
    "keras": "3.15.1",
}


def answering(monkeypatch: pytest.MonkeyPatch, status: int = 0, stdout: str = "", stderr: str = "") -> None:
    done = subprocess.CompletedProcess[str](args=[], returncode=status, stdout=stdout, stderr=stderr)
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: done)


def test_a_cell_travels_to_its_process_whole() -> None:
    *command, text = process.cell_command(CELL)
    assert command[1:] == ["-m", "payload.benchmark.cell"]
    assert Cell(**json.loads(text)) == CELL


def test_onednn_is_tensorflows_default_or_off_whatever_the_environment_says() -> None:
    environ = {ONEDNN: "1", "HOME": "/h"}
    assert process.cell_environment(CELL, environ) == {"HOME": "/h", process.LOG_LEVEL: "2"}
    off = dataclasses.replace(CELL, variant="onednn-off")
    assert process.cell_environment(off, environ)[ONEDNN] == "0"
    assert process.cell_environment(CELL, {process.LOG_LEVEL: "0"}) == {process.LOG_LEVEL: "0"}


@pytest.mark.parametrize(
    ("status", "stderr", "reason"),
    [
        (-9, "", "killed; most likely out of memory: give smaller --batch-sizes"),
        (-11, "", "ended by SIGSEGV"),
        (1, "Traceback\nValueError: no\n\n", "exit status 1: ValueError: no"),
        (3, "\n", "exit status 3: no message"),
    ],
)
def test_a_process_that_failed_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, status: int, stderr: str, reason: str
) -> None:
    answering(monkeypatch, status, stderr=stderr)
    assert process.run_cell(CELL, {}, 10).failure == reason


def test_a_process_that_hangs_or_says_nothing_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, 0, stdout="hello")
    assert "printed no figures but 'hello'" in str(process.run_cell(CELL, {}, 10).failure)

    def hang(*args: Any, **options: Any) -> Any:
        raise subprocess.TimeoutExpired("cell", options["timeout"])

    monkeypatch.setattr(subprocess, "run", hang)
    assert process.run_cell(CELL, {}, 10).failure == "not done after 10 s; give fewer --steps"


def test_wrong_arguments_end_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--networks", "resnet5"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("payload.benchmark: error: network resnet5: unknown; did you mean resnet50?")
    assert error.count("\n") == 1


def test_a_failed_cell_leaves_the_others_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def run(command: list[str], **options: Any) -> Any:
        failed = json.loads(command[-1])["batch_size"] == 8
        return subprocess.CompletedProcess(command, -9 if failed else 0, json.dumps(FIGURES), "")

    monkeypatch.setattr(subprocess, "run", run)
    path = tmp_path / "figures.json"
    assert benchmark.main(["--networks", "lenet", "--batch-sizes", "4,8,16", "--json", str(path)]) == 1
    output = capsys.readouterr()
    assert [line.split()[3] for line in output.out.splitlines()[2:5]] == ["8", "failed", "32"]
    assert "3 of 3: lenet, batch 16: 32 images/s" in output.err
    assert [cell["images_per_s"] for cell in json.loads(path.read_text())["cells"]] == [8, None, 32]


def test_a_file_that_cannot_be_written_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answering(monkeypatch, stdout=json.dumps(FIGURES))
    path = tmp_path / "absent" / "figures.json"
    assert benchmark.main(["--networks", "lenet", "--batch-sizes", "4,8", "--json", str(path)]) == 1
    assert f"cannot write {path}" in capsys.readouterr().err


def test_an_interruption_prints_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **options: Any) -> Any:
        if json.loads(command[-1])["batch_size"] == 8:
            raise KeyboardInterrupt
        return subprocess.CompletedProcess(command, 0, json.dumps(FIGURES), "")

    monkeypatch.setattr(subprocess, "run", run)
    assert benchmark.main(["--networks", "lenet", "--batch-sizes", "4,8"]) == 130
    assert capsys.readouterr().out.splitlines()[-1].split()[:4] == ["lenet", "4", "28", "8"]


@pytest.mark.tensorflow
def test_lenet_is_measured_tuned_as_it_comes_and_without_onednn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "figures.json"
    argv = ["--networks", "lenet", "--batch-sizes", "4", "--steps", "3", "--warmup-steps", "1", "--json", str(path)]
    assert benchmark.main([*argv, "--compare-onednn", "--compare-tuned"]) == 0
    cells = json.loads(path.read_text())["cells"]
    assert [cell["variant"] for cell in cells] == ["tuned", "stock", "onednn-off"]
    assert "intra-op" in cells[0]["chosen"] and cells[1]["chosen"] == "as TensorFlow comes"
    for cell in cells:
        assert cell["parameters"] == 431_080
        assert len(cell["step_seconds"]) == 3 and min(cell["step_seconds"]) > 0
        assert cell["images_per_s"] == pytest.approx(4 / sorted(cell["step_seconds"])[1])
        assert cell["cores_used"] > 0 and cell["peak_memory_mib"] > 50
    header, row = capsys.readouterr().out.splitlines()[1:3]
    assert header.endswith("stock  cores stock  ratio  oneDNN off  cores off  ratio")
    assert row.split()[:3] == ["lenet", "4", "28"] and float(row.split()[-1]) > 0
