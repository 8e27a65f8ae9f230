from __future__ import annotations

from pathlib import Path

import pytest

from cluster.bench.measurements import read_bench
from cluster.planner.past_benches import bench_rates, predicted_step_s
from cluster.planner.past_links import NO_LINKS
from payload.settings.bench import TRAINING
from tests.cluster.bench.benches import event, scaling, written
from tests.cluster.planner.test_past_runs import record


def test_the_cell_on_the_fewest_nodes_gives_the_rate_with_its_rounds_as_the_range(tmp_path: Path) -> None:
    (found,) = bench_rates(scaling(tmp_path, noise=0.05), record())
    assert found.value == pytest.approx(32 / 0.1, rel=1e-3)
    assert (found.low, found.high) == pytest.approx((32 / 0.105, 32 / 0.095), rel=1e-3)
    assert (found.network, found.instance_type, found.nodes, found.ranks_per_node) == ("lenet", "c5.2xlarge", 1, 1)
    assert not found.embedded


def test_of_several_batches_the_largest_counts(tmp_path: Path) -> None:
    cells = [event(TRAINING, 1, [seconds] * 3) for seconds in (0.05, 0.2)]
    for lines, batch in zip(cells, (1, 64), strict=True):
        for line in lines:
            line["cell"]["batch_per_rank"] = batch
    (found,) = bench_rates(read_bench(written(tmp_path, cells)), record())
    assert found.value == pytest.approx(64 / 0.2, rel=1e-3)


def test_each_precision_has_its_rate_and_a_benchmark_of_before_is_of_float32(tmp_path: Path) -> None:
    old, half = (event(TRAINING, 1, [seconds] * 3) for seconds in (0.2, 0.1))
    for line in old:
        line["cell"].pop("precision", None)  # of all lines, which share it
    for line in half:
        line["cell"]["precision"] = "bfloat16"
    found = bench_rates(read_bench(written(tmp_path, [old, half])), record())
    rates = {each.precision: each.value for each in found}
    assert rates == pytest.approx({"float32": 32 / 0.2, "bfloat16": 32 / 0.1}, rel=1e-3)


def test_without_a_single_node_the_wait_for_gradients_is_not_the_computation_s(tmp_path: Path) -> None:
    (found,) = bench_rates(read_bench(written(tmp_path, [event(TRAINING, 2, [0.11] * 3)])), record())
    assert found.value > 32 / 0.11


def test_a_benchmark_without_a_type_gives_no_rate(tmp_path: Path) -> None:
    assert bench_rates(scaling(tmp_path), record(origin={"instance_types": {}})) == []


def test_from_one_node_and_the_link_the_model_expects_what_it_would_of_a_plan(tmp_path: Path) -> None:
    bench = scaling(tmp_path)
    (rate,) = bench_rates(bench, record())
    one, two, four = (predicted_step_s(each, rate, record(), NO_LINKS) for each in bench.of_kind(TRAINING))
    assert one == pytest.approx(0.1, rel=1e-3)
    assert one is not None and two is not None and four is not None
    assert one < two < four


def test_the_cycle_of_a_benchmark_is_waited_for_as_it_was(tmp_path: Path) -> None:
    bench = scaling(tmp_path)
    (rate,) = bench_rates(bench, record())
    cell = bench.of_kind(TRAINING)[1]
    short, long = (predicted_step_s(cell, rate, record(), NO_LINKS, cycle_s) for cycle_s in (1e-3, 21e-3))
    assert short is not None and long is not None
    assert long - short == pytest.approx(10e-3)  # half a cycle on average


def test_of_unknown_nodes_nothing_is_expected(tmp_path: Path) -> None:
    bench = scaling(tmp_path)
    (rate,) = bench_rates(bench, record())
    nowhere = record(origin={"instance_types": {}})
    assert predicted_step_s(bench.of_kind(TRAINING)[1], rate, nowhere, NO_LINKS) is None


def test_a_cell_without_images_gives_no_rate_in_place_of_an_error(tmp_path: Path) -> None:
    lines = event(TRAINING, 1, [0.1] * 3)
    for line in lines:
        line["cell"]["batch_per_rank"] = 0
    assert bench_rates(read_bench(written(tmp_path, [lines])), record()) == []
