"""Reading a benchmark: its medians, spread, efficiency and bandwidth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.bench.measurements import Bench, read_bench
from cluster.errors import DeepcdkError
from payload.settings.bench import ALLREDUCE, TRAINING
from tests.cluster.bench.benches import event, written


def test_cell_has_median_and_spread_of_its_rounds(tmp_path: Path) -> None:
    (cell,) = read_bench(written(tmp_path, [event(TRAINING, 1, (0.10, 0.08, 0.09))])).measurements
    assert cell.median_s == 0.09
    assert cell.images_per_s == pytest.approx(32 / 0.09)
    assert cell.spread == pytest.approx(0.02 / 0.09)


def test_efficiency_is_images_per_s_against_linear_from_the_fewest_nodes(tmp_path: Path) -> None:
    events = [event(TRAINING, 1, (0.1,)), event(TRAINING, 2, (0.125,)), event(TRAINING, 4, (0.2,))]
    bench = read_bench(written(tmp_path, [*events, event(ALLREDUCE, 2, (0.1,))]))
    assert [bench.efficiency(each) for each in bench.of_kind(TRAINING)] == pytest.approx([1.0, 0.8, 0.5])
    assert [each.images_per_s for each in bench.of_kind(TRAINING)] == pytest.approx([320, 512, 640])
    assert bench.efficiency(bench.of_kind(ALLREDUCE)[0]) is None


def test_bus_bandwidth_is_defined_as_in_nccl_tests(tmp_path: Path) -> None:
    # doc/PERFORMANCE.md of nccl-tests: busbw = algbw * 2 * (n - 1) / n
    (found,) = read_bench(written(tmp_path, [event(ALLREDUCE, 4, (0.001,), message_bytes=1 << 20)])).measurements
    assert found.algorithm_bytes_per_s == pytest.approx(1.048576e9)
    assert found.bus_bytes_per_s == pytest.approx(1.572864e9)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "7",
        json.dumps({"type": "cell"}),
        json.dumps({"type": "cell", "round": 0, "ranks": 1, "seconds": 1, "cell": {"kind": "x", "nodes": 1}}),
        json.dumps({"type": "cell", "round": 0, "ranks": 1, "seconds": -1, "cell": {"kind": TRAINING, "nodes": 1}}),
        json.dumps({"type": "cell", "round": 0, "ranks": 1, "seconds": 1, "cell": {"kind": TRAINING, "nodes": "1"}}),
    ],
)
def test_line_without_value_is_ignored(line: str, tmp_path: Path) -> None:
    directory = written(tmp_path, [event(TRAINING, 1, (0.1,))])
    with (directory / "bench.jsonl").open("a") as file:
        file.write(line + "\n")
    assert [each.seconds for each in read_bench(directory).measurements] == [(0.1,)]


@pytest.mark.parametrize(("events", "said"), [(None, r"has no bench\.jsonl"), ([], "has no measurement")])
def test_run_that_is_not_a_benchmark_is_rejected(events: list[Any] | None, said: str, tmp_path: Path) -> None:
    directory = tmp_path if events is None else written(tmp_path, events)
    with pytest.raises(DeepcdkError, match=said):
        read_bench(directory)


@pytest.mark.parametrize(
    ("origin", "cycle_s"),
    [
        ({"tuning": {"cycle_time_ms": 2.5}}, 2.5e-3),
        ({"tuning": {"cycle_time_ms": None}}, 1e-3),  # Horovod's own
        ({"tuning": {"cycle_time_ms": float("nan")}}, 1e-3),
        ({"tuning": "2.5"}, None),
        ({}, None),
    ],
)
def test_cycle_time_is_recorded_or_default_of_horovod(origin: dict[str, Any], cycle_s: float | None) -> None:
    assert Bench(run_id="bench", measurements=(), origin=origin).cycle_s == cycle_s


def test_too_large_measurements_are_rejected(tmp_path: Path) -> None:
    with (tmp_path / "bench.jsonl").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(DeepcdkError, match=r"cannot be read"):
        read_bench(tmp_path)
