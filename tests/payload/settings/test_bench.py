"""The measurements of a benchmark and their order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from payload.bench.ranks import settings_of
from payload.settings import SettingError
from payload.settings.bench import (
    ALLREDUCE,
    INPUT,
    READ,
    TRAINING,
    WRITE,
    BenchConfig,
    BenchSettings,
    Cell,
    parse_settings,
)

ALONE = {"input_size": "0", "storage_mib": "0"}
"""Settings without the input pipeline and files."""
SETTINGS = BenchSettings(nodes=(1, 2, 4), networks=("lenet", "resnet50"), batch_sizes=(8, 32), repeats=3)


def test_cells_combine_networks_batches_and_nodes_and_allreduces_need_two_nodes() -> None:
    cells = SETTINGS.cells()
    counts = {TRAINING: 2 * 2 * 3, ALLREDUCE: 5 * 2, INPUT: 3, WRITE: 2 * 3, READ: 2 * 3}
    assert Counter(cell.kind for cell in cells) == counts
    assert cells[0] == Cell(kind=TRAINING, network="lenet", batch_per_rank=8, nodes=1)
    assert {cell.nodes for cell in cells if cell.kind == ALLREDUCE} == {2, 4}


def test_each_round_measures_every_cell_once_and_every_second_one_backwards() -> None:
    rounds = SETTINGS.rounds()
    count = len(SETTINGS.cells())
    by_round = [[cell for number, cell in rounds if number == wanted] for wanted in range(3)]
    assert [number for number, _ in rounds] == [0] * count + [1] * count + [2] * count
    assert by_round[0] == list(SETTINGS.cells()) == by_round[1][::-1] == by_round[2]


def test_cell_has_a_description() -> None:
    assert str(SETTINGS.cells()[0]) == "lenet, 8 images a rank, 1 node"
    told = [str(cell) for cell in SETTINGS.cells() if cell.kind != TRAINING]
    assert told[9] == "allreduce of 67,108,864 bytes, 4 nodes"
    assert told[12] == "input, 256 images to 224 pixels a rank, 4 nodes"
    assert told[13] == "write 67,108,864 bytes a node, shared, 1 node"
    assert told[-1] == "read 67,108,864 bytes a node, local, 4 nodes"


def test_image_sizes_are_separate_cells_and_allreduces_can_be_alone() -> None:
    small = parse_settings({**ALONE, "nodes": "1", "networks": "resnet50", "image_size": "64"})
    assert [str(cell) for cell in small.cells()] == ["resnet50, 32 images of 64 pixels a rank, 1 node"]
    alone = parse_settings({**ALONE, "nodes": "2", "networks": ","})
    assert {cell.kind for cell in alone.cells()} == {ALLREDUCE}
    argv = ["--run-dir", "/run", *alone.arguments()]
    assert BenchConfig.from_argv(argv).settings == alone


def test_precisions_are_separate_cells_and_float32_is_not_named() -> None:
    both = parse_settings({**ALONE, "nodes": "1", "networks": "resnet50", "precisions": "float32,bfloat16"})
    told = ["resnet50, 32 images a rank, 1 node", "resnet50 in bfloat16, 32 images a rank, 1 node"]
    assert [str(cell) for cell in both.cells()] == told
    assert settings_of(both.cells()[1], both).precision == "bfloat16"
    argv = ["--run-dir", "/run", *both.arguments()]
    assert BenchConfig.from_argv(argv).settings == both


def test_default_tuning_is_the_chosen_one() -> None:
    untuned = parse_settings({"nodes": "1", "tuning": "defaults"})
    assert (untuned.tuning, parse_settings({"nodes": "1"}).tuning) == ("defaults", "chosen")
    assert BenchConfig.from_argv(["--run-dir", "/run", *untuned.arguments()]).settings == untuned


def test_ranks_parse_the_settings_of_the_laptop() -> None:
    argv = ["--run-dir", "/run", *SETTINGS.arguments(), "--resume"]
    assert BenchConfig.from_argv(argv) == BenchConfig(run_dir=Path("/run"), settings=SETTINGS)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"nodes": "2,1"}, "--nodes 2,1: must be ascending, without duplicates"),
        ({"nodes": "0,1"}, "--nodes 0: must be 1 to 4096"),
        ({"nodes": ""}, "--nodes: must list at least one number of nodes"),
        ({"batch_sizes": "8,x"}, "--batch-sizes: must be whole numbers separated by commas"),
        ({"repeats": "1"}, "--repeats 1: must be 2 to 100"),
        ({"repeats": "3,4"}, "--repeats: must be a whole number, not '3,4'"),
        ({"networks": "resnet5"}, "did you mean resnet50?"),
        ({"networks": "lenet,lenet"}, "--networks lenet,lenet: must not list a value twice"),
        ({"precisions": "float23"}, "did you mean float32?"),
        ({"precisions": "float32,float32"}, "--precisions float32,float32: must not list a value twice"),
        ({**ALONE, "networks": "", "nodes": "1"}, "nothing to measure"),
        ({"input_size": "9000"}, "--input-size 9000: must be 0 to 8192"),
        ({"storage_mib": "-1"}, "--storage-mib -1: must be 0 to 65536"),
        ({"message_bytes": "1022"}, "--message-bytes 1022: must be multiples of 4"),
        ({"tuning": "default"}, "did you mean defaults?"),
    ],
)
def test_impossible_measurement_is_rejected_with_flag(given: dict[str, str], rule: str) -> None:
    with pytest.raises(SettingError) as raised:
        parse_settings(given)
    assert rule in str(raised.value)


def test_unknown_argument_of_ranks_is_reported_with_nearest_match() -> None:
    with pytest.raises(SettingError, match="did you mean --repeats"):
        BenchConfig.from_argv(["--run-dir", "/run", "--repeat=3"])
