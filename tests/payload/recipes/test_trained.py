"""End-to-end training at a reduced size, for each recipe with files that the tests can generate."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from payload.data.records import maker
from tests.payload.data.drawings import SHAPES, write_idx, write_images, write_records

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]
LAUNCHER = [sys.executable, "-m", "agent.launch.horovodrun", "-np", "2", "-H", "localhost:2", "--gloo"]
CHANCE = 1 / len(SHAPES)


def trained(run_dir: Path, recipe: str, *flags: str, launcher: Sequence[str] = LAUNCHER) -> dict[str, Any]:
    """Train on two ranks, unless another launcher is given; return the result."""
    command = [sys.executable, "-m", "payload.train", "--recipe", recipe, "--run-dir", str(run_dir), *flags]
    done = subprocess.run(
        [*launcher, "sh", "-c", shlex.join(command)],  # the launcher would take flags that begin like its own
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    return result


def epochs(run_dir: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["event"] == "epoch"]


def test_fashion_mnist_follows_its_protocol_and_learns(tmp_path: Path) -> None:
    write_idx(tmp_path / "data", training=320, test=120)
    run_dir = tmp_path / "run"
    # A network for CPUs: the recipe's own needs 170 times the multiplications, which took two minutes.
    few = ["--network", "lenet", "--global-batch", "8"]
    short = [*few, "--epochs", "3", "--augmented-epochs", "1", "--rate-phases", "0-2:0.001,2-:0.0001"]
    result = trained(run_dir, "fashion-mnist", "--data-dir", str(tmp_path / "data"), *short)
    assert result["test_accuracy"] >= 0.8 > 3 * CHANCE
    assert (result["epochs"], result["steps"]) == (4, 4 * 32)  # 80% of 320 images in batches of 8
    assert result["settings"]["validation_fraction"] == 0.2
    assert all("validation_accuracy" in epoch and "test_accuracy" not in epoch for epoch in epochs(run_dir))
    assert result["validation_accuracy"] == pytest.approx(epochs(run_dir)[-1]["validation_accuracy"], abs=1e-6)


def test_benchmark_measures_a_network_on_synthetic_images(tmp_path: Path) -> None:
    small = ["--network", "lenet", "--image-size", "28", "--classes", "10", "--train-limit", "24"]
    result = trained(tmp_path, "benchmark", *small, "--batch-per-rank", "8", launcher=[])
    assert (result["steps"], result["global_batch"], result["settings"]["optimizer"]) == (3, 8, "rmsprop")
    assert result["images_per_s"] == pytest.approx(24 / result["training_seconds"], rel=1e-3)


SMALL = ["--network", "resnet20", "--precision", "float32", "--loss-scale", "0", "--compression", "none"]
"""A network and number formats for CPUs, which are slow with float16."""


@pytest.mark.full
def test_imagenet_90_learns_from_record_files(tmp_path: Path) -> None:
    write_records(tmp_path / "data", training=480, test=120, side=32)
    # The recipe's crops of 8% of the area would show nothing recognizable of these small drawings.
    short = ["--epochs", "6", "--warmup-epochs", "1", "--global-batch", "16", "--learning-rate", "3.2"]
    size = ["--image-size", "24", "--smallest-crop", "0.6"]
    result = trained(tmp_path / "run", "imagenet-90", "--data-dir", str(tmp_path / "data"), *SMALL, *short, *size)
    assert result["test_accuracy"] >= 0.75 == 3 * CHANCE
    assert result["peak_learning_rate"] == pytest.approx(3.2 * 16 / 256)
    assert (result["variant"], result["settings"]["flip"], result["settings"]["weight_decay"]) == ("sgd", True, 1e-4)


@pytest.mark.full
def test_imagenet_fast_learns_with_growing_images_and_rectangular_validation(tmp_path: Path) -> None:
    write_images(tmp_path / "raw", training=480, validation=120, side=56)
    sizes = ["--sizes", "40,0", "--shards", "3", "--workers", "2"]
    assert maker.main([str(tmp_path / "raw"), str(tmp_path / "data"), *sizes]) == 0
    phases = ["--image-phases", "0:24/24/0.6,3:32/16/0.6,5:40/16/0.8/rectangular"]
    rates = ["--rate-phases", "0-1:0.02..0.15,1-3:0.15..0.1,3-5:0.1..0.01,5-6:0.005..0.0005"]
    run_dir = tmp_path / "run"
    flags = ["--variant", "1-node", "--epochs", "6", *phases, *rates]
    result = trained(run_dir, "imagenet-fast", "--data-dir", str(tmp_path / "data"), *SMALL, *flags)
    assert result["test_accuracy"] >= 0.75 == 3 * CHANCE
    assert result["steps"] == 3 * 20 + 3 * 30
    assert (result["variant"], result["global_batch"]) == ("1-node", 16)
    assert epochs(run_dir)[-1]["test_accuracy"] == pytest.approx(result["test_accuracy"], abs=1e-6)
