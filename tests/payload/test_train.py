from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from payload import train
from payload.training.export import onnx_conversion

ROOT = Path(__file__).parents[2]


def command(run_dir: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "payload.train", "--recipe", "digits", "--run-dir", str(run_dir), *flags]


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **extra}


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        (["--epochs", "none"], 2, "--epochs: must be a whole number, not 'none'"),
        (["--epoch", "1"], 2, "did you mean --epochs?"),
        (["--recipe", "fashion-mnist", "--data-dir", "/absent"], 1, "/absent: no such directory"),
    ],
)
def test_early_failures_are_one_line_without_importing_tensorflow(
    tmp_path: Path, flags: list[str], status: int, said: str
) -> None:
    run_dir = tmp_path / "run"
    done = subprocess.run(command(run_dir, *flags), capture_output=True, text=True, cwd=ROOT, env=environment())
    assert done.returncode == status
    assert said in done.stderr
    assert done.stderr.startswith("payload.train: error: ")
    assert done.stderr.count("\n") == 1
    assert not run_dir.exists()


def test_result_of_a_completed_run_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, action: None)
    (tmp_path / "result.json").write_text("{}")
    assert train.main(["--recipe", "digits", "--run-dir", str(tmp_path), "--resume"]) == 1
    assert "already contains the result of a completed run" in capsys.readouterr().err
    assert (tmp_path / "result.json").read_text() == "{}"


def test_run_that_cannot_be_exported_as_onnx_is_rejected_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, action: None)
    monkeypatch.setattr(onnx_conversion, "PACKAGES", ("json", "no_such_package"))
    run_dir = tmp_path / "run"
    assert train.main(["--recipe", "digits", "--run-dir", str(run_dir), "--export-onnx"]) == 1
    said = capsys.readouterr().err
    assert "ONNX: packages missing in this Python: no_such_package; install them with: pip install" in said
    assert not run_dir.exists()


def test_other_ranks_let_rank_0_report_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    for rank in ("0", "3"):
        monkeypatch.setenv("HOROVOD_RANK", rank)
        assert train.main(["--recipe", "cifar"]) == 2
    assert waits == [train.ROOT_FIRST_S]
    assert capsys.readouterr().err.count("error") == 2


def test_stop_file_stops_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, action: None)
    monkeypatch.setattr(train, "STOP_FILE_INTERVAL_S", 3600.0)
    stop = train.StopRequest(tmp_path, watch_file=True)
    assert not stop()
    (tmp_path / train.STOP_FILE).touch()
    assert not stop(), "the shared file system is not asked at every step"
    monkeypatch.setattr(stop, "_next_look", 0.0)
    assert stop()


@pytest.mark.tensorflow
def test_sigterm_stops_with_checkpoint_and_its_own_exit_status(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(tmp_path, "--epochs", "1000"), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        for line in process.stdout:
            if line.startswith("epoch 1/"):
                break
        process.send_signal(signal.SIGTERM)
        said = process.stdout.read()
        assert process.wait(timeout=60) == train.EXIT_STOPPED == 143
    finally:
        process.kill()
        process.wait()
    last = metrics(tmp_path)[-1]
    assert last["event"] == "stopped"
    assert (tmp_path / "checkpoints" / last["checkpoint"] / "manifest.json").exists()
    assert f"with checkpoint {last['checkpoint']}; to continue: `fab resume`, or repeat" in said
    assert not (tmp_path / "result.json").exists()
