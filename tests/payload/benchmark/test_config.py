from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ReportedError
from payload.benchmark.config import BATCH_SIZES, NETWORK_NAMES, BenchmarkConfig
from payload.models.registry import ImageShapeError, UnknownNetworkError
from payload.settings import SettingError

ROOT = Path(__file__).resolve().parents[3]


def test_without_arguments_it_is_the_table_of_the_source() -> None:
    config = BenchmarkConfig.from_argv([])
    assert tuple(network.name for network in config.networks) == NETWORK_NAMES
    assert config.batch_sizes == BATCH_SIZES
    assert config.mode == "training"
    assert {cell.image_size for cell in config.cells()} == {224, 299}


def test_a_comparison_stands_beside_what_it_is_compared_with() -> None:
    cells = BenchmarkConfig.from_argv(
        ["--networks", "lenet, vgg16", "--batch-sizes", "1,8,8", "--compare-onednn", "--image-size", "64"]
    ).cells()
    assert [(cell.network, cell.batch_size, cell.variant) for cell in cells] == [
        ("lenet", 1, "tuned"),
        ("lenet", 1, "onednn-off"),
        ("lenet", 8, "tuned"),
        ("lenet", 8, "onednn-off"),
        ("vgg16", 1, "tuned"),
        ("vgg16", 1, "onednn-off"),
        ("vgg16", 8, "tuned"),
        ("vgg16", 8, "onednn-off"),
    ]
    assert {cell.image_size for cell in cells} == {64}


def test_all_variants_are_measured_side_by_side() -> None:
    argv = ["--networks", "lenet", "--batch-sizes", "1", "--compare-tuned", "--compare-onednn"]
    assert [cell.variant for cell in BenchmarkConfig.from_argv(argv).cells()] == ["tuned", "stock", "onednn-off"]


def test_flags_reach_the_cells() -> None:
    argv = ["--steps=5", "--warmup-steps=1", "--mode=inference", "--intra-op-threads=2", "--inter-op-threads=0"]
    config = BenchmarkConfig.from_argv([*argv, "--json", "/x.json", "--cell-timeout-s", "60"])
    cell = config.cells()[0]
    assert (cell.steps, cell.warmup_steps, cell.mode) == (5, 1, "inference")
    assert (cell.intra_op_threads, cell.inter_op_threads) == (2, 0)
    assert (config.json_path, config.cell_timeout_s) == (Path("/x.json"), 60)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--batch-sizes", "1,x"], "--batch-sizes 1,x: must be whole numbers"),
        (["--batch-sizes", "0"], "--batch-sizes 0: must be 1 to 65536"),
        (["--steps", "0"], "--steps 0: must be 1 to 1e"),
        (["--warmup-steps", "0"], "--warmup-steps 0: must be 1"),
        (["--cell-timeout-s", "nan"], "--cell-timeout-s nan: must be 1"),
        (["--intra-op-threads", "-1"], "--intra-op-threads -1: must be 0"),
        (["--mode", "both"], "invalid choice: 'both'"),
        (["--bacth-sizes", "1"], "argument --bacth-sizes: unknown; did you mean --batch-sizes?"),
        (["--jsn=x"], "argument --jsn=x: unknown; did you mean --json?"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(SettingError) as raised:
        BenchmarkConfig.from_argv(argv)
    assert isinstance(raised.value, ReportedError)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_networks_and_sizes_are_checked_before_anything_is_measured() -> None:
    with pytest.raises(UnknownNetworkError, match=r"network inception3: unknown; did you mean inception-v3\?"):
        BenchmarkConfig.from_argv(["--networks", "resnet50,inception3"])
    with pytest.raises(ImageShapeError, match="inception-v3 needs at least 75 x 75"):
        BenchmarkConfig.from_argv(["--networks", "resnet50,inception-v3", "--image-size", "64"])
    with pytest.raises(ImageShapeError, match="images of -3 x -3"):
        BenchmarkConfig.from_argv(["--networks", "resnet50", "--image-size", "-3"])


def test_the_command_and_its_help_do_not_import_tensorflow() -> None:
    program = "import sys, payload.benchmark.__main__; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
    done = subprocess.run(
        [sys.executable, "-m", "payload.benchmark", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "resnet152" in done.stdout
