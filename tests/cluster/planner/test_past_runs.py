"""The planner's use of past runs and benchmarks."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cluster.bench.measurements import Bench, Measurement, read_bench
from cluster.planner.assumptions import assume
from cluster.planner.calibration import Calibration
from cluster.planner.communication import ring_seconds
from cluster.planner.hardware import hardware_of
from cluster.planner.past_runs import (
    NO_FIGURE,
    bench_link,
    bench_rates,
    past_rate,
    past_start,
    rate_of,
    read_calibration,
)
from cluster.planner.run_time import Cluster, run_seconds
from cluster.planner.workload import workload_of
from payload.recipes.digits import DIGITS
from payload.settings import Settings
from payload.settings.bench import ALLREDUCE, MESSAGE_BYTES, TRAINING, Cell
from tests.cluster.bench.benches import event, scaling, written
from tests.cluster.report import recorded_runs

HOSTS = [host["instance_id"] for host in recorded_runs.raw()["spec"]["hosts"]]


def record(**parts: Any) -> dict[str, Any]:
    """Return the recorded run with other parts, as if its nodes were c5.2xlarge."""
    found = copy.deepcopy(recorded_runs.raw())
    found["origin"] |= {"endpoint": "", "instance_types": dict.fromkeys(HOSTS, "c5.2xlarge")}
    for name, value in parts.items():
        found[name] = {**(found.get(name) or {}), **value} if isinstance(value, dict) else value
    return found


def named(run_id: str, **state: Any) -> dict[str, Any]:
    """Return the record of another run."""
    return record(run_id=run_id, state={**state, "run_id": run_id}, spec={"run_id": run_id})


def fetched(folder: Path, found: dict[str, Any]) -> None:
    """Write a record where `fab fetch` writes it."""
    (folder / found["run_id"]).mkdir(exist_ok=True)
    (folder / found["run_id"] / "record.json").write_text(json.dumps(found))


def allreduces(
    nodes: int, bytes_s: float, hop_s: float, sizes: tuple[int, ...] = MESSAGE_BYTES, cycle_s: float = 0.0
) -> Bench:
    """Return a benchmark with sums that take the model's time for this ring plus one Horovod cycle."""
    sums = tuple(
        Measurement(
            cell=Cell(kind=ALLREDUCE, message_bytes=size, nodes=nodes),
            ranks=nodes,
            seconds=(cycle_s + ring_seconds(size, nodes, bytes_s, hop_s),) * 3,
        )
        for size in sizes
    )
    return Bench(run_id="bench", measurements=sums, origin={"tuning": {"cycle_time_ms": 1e3 * cycle_s}})


def test_run_gives_the_rate_with_which_the_model_takes_as_long() -> None:
    rate = past_rate(record())
    assert (rate.network, rate.precision, rate.instance_type) == ("lenet", "float32", "c5.2xlarge")
    assert (rate.ranks_per_node, rate.nodes, rate.embedded) == (1, 2, False)
    workload = workload_of(DIGITS.settings, 2)
    assumed = assume(workload, hardware_of("c5.2xlarge"), placement_group=False).at("images_s", rate.images_s.value)
    parts = run_seconds(workload, Cluster(hardware=hardware_of("c5.2xlarge"), nodes=2), assumed)
    assert parts.compute + parts.communication == pytest.approx(record()["result"]["training_seconds"], rel=1e-4)


@pytest.mark.parametrize(("endpoint", "embedded"), [("", False), ("http://127.0.0.1:4566", True), (None, True)])
def test_nodes_count_as_an_embedded_clouds_unless_the_record_says_aws(endpoint: str | None, embedded: bool) -> None:
    assert past_rate(record(origin={"endpoint": endpoint})).embedded == embedded


@pytest.mark.parametrize(
    ("later", "spread"), [([*[1.0] * 17, 0.8, 1.25], (0.8, 1.25)), ([*[1.0] * 17, 0.1, 9.0], (0.5, 2.0))]
)
def test_range_of_a_rate_is_that_of_its_epochs_without_the_first_up_to_a_limit(
    later: list[float], spread: tuple[float, float]
) -> None:
    rate = past_rate(record(result={"epoch_seconds": [9.0, *later]})).images_s
    assert (rate.low / rate.value, rate.high / rate.value) == pytest.approx(spread)


def test_start_up_is_the_time_besides_the_epochs() -> None:
    found = record()
    took = found["state"]["updated"] - found["state"]["started"]
    seconds = past_start(found).seconds
    assert seconds.value == pytest.approx(took - sum(found["result"]["epoch_seconds"]))
    assert (seconds.low, seconds.high) == pytest.approx((0.5 * seconds.value, 1.5 * seconds.value))


@pytest.mark.parametrize(
    "parts",
    [
        {"state": {"state": "failed"}},
        {"attempts": 2},
        {"course": {"restarts": [{"for": "a node"}]}},
        {"result": {"resumed_from": "step-00000100"}},
        {"result": {"settings": []}},
        {"result": {"settings": {"epochs": 0}}},
        {"result": {"epoch_seconds": "many"}},
        {"result": {"epoch_seconds": [1.0, float("nan"), 2.0]}},
        {"result": {"epoch_seconds": [1.0, float("inf"), 2.0]}},
        {"result": {"epoch_seconds": [1.0, 2.0]}},
        {"result": {"training_seconds": 1e-9}},
        {"origin": {"instance_types": {}}},
        {"origin": {"instance_types": {HOSTS[0]: "c5.2xlarge", HOSTS[1]: "c5.4xlarge"}}},
        {"origin": {"instance_types": dict.fromkeys(HOSTS, "c5.2xlrge")}},
        {"spec": {"hosts": []}},
        {"result": {"ranks": 3}},
    ],
)
def test_run_without_a_usable_rate_is_rejected(parts: dict[str, Any]) -> None:
    with pytest.raises(NO_FIGURE):
        past_rate(record(**parts))


@given(rate=st.floats(0.1, 1e5), nodes=st.integers(1, 8), network=st.sampled_from(["lenet", "resnet50", "vgg16"]))
def test_rate_of_modelled_run_is_recovered(rate: float, nodes: int, network: str) -> None:
    hardware = hardware_of("c5.2xlarge")
    cluster = Cluster(hardware=hardware, nodes=nodes)
    workload = workload_of(Settings(network=network, dataset="synthetic", batch_per_rank=32, epochs=2), nodes)
    assumed = assume(workload, hardware)
    parts = run_seconds(workload, cluster, assumed.at("images_s", rate))
    training_s = parts.compute + parts.communication + parts.input
    if parts.compute > 0.05 * parts.communication:
        assert rate_of(training_s, workload, cluster, assumed) == pytest.approx(rate, rel=1e-3)


def test_fetched_runs_are_read_newest_first_and_unreadable_ones_skipped(tmp_path: Path) -> None:
    first = record()
    last = named("20270101-000000-digits-ab12", updated=first["state"]["updated"] + 10)
    for found in (first, last):
        fetched(tmp_path, found)
    for name, text in (("damaged", "{"), ("foreign", "[1]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").write_text(text)
    found_runs = read_calibration(tmp_path)
    assert [each.run_id for each in found_runs.rates] == [last["run_id"], first["run_id"]]
    assert [each.run_id for each in found_runs.starts] == [last["run_id"], first["run_id"]]
    assert read_calibration(tmp_path / "absent") == Calibration()


def test_time_that_a_run_waited_for_a_measured_link_is_not_its_computation(tmp_path: Path) -> None:
    fetched(tmp_path, record())
    (alone,) = read_calibration(tmp_path).rates
    for name, arguments in (("tuned", ()), ("untuned", ("--tuning", "defaults"))):
        cells = [event(ALLREDUCE, 2, [ring_seconds(n, 2, 5e7, 1e-3)] * 3, message_bytes=n) for n in MESSAGE_BYTES]
        written(tmp_path, cells, name, arguments)
        fetched(tmp_path, named(name))
    found = read_calibration(tmp_path)
    assert [each.run_id for each in found.links] == ["tuned"], "runs are tuned"
    assert found.rates[0].images_s.value > alone.images_s.value


def test_link_has_the_kind_of_its_nodes_and_no_cycle_of_horovod() -> None:
    config = {"efa": True, "placement_group": False}
    found = bench_link(allreduces(4, 1e9, 1e-4, cycle_s=5e-3), record(origin={"config": config}))
    assert (found.nodes, found.ranks_per_node, found.efa, found.together) == (4, 1, True, True)
    link = found.link(1 << 20)
    assert link is not None
    bandwidth, hop = link
    assert (bandwidth.value, hop.value) == pytest.approx((1e9, 1e-4))


@pytest.mark.parametrize(
    ("bench", "origin"),
    [
        (allreduces(2, 1e9, 1e-4, sizes=(1 << 10,)), {}),
        (allreduces(1, 1e9, 1e-4), {}),
        (allreduces(2, 1e9, 1e-4), {"instance_types": {}}),
    ],
    ids=["one size", "one node", "unknown type"],
)
def test_benchmark_without_a_usable_link_is_rejected(bench: Bench, origin: dict[str, Any]) -> None:
    with pytest.raises(NO_FIGURE):
        bench_link(bench, record(origin=origin))


def test_cell_on_the_fewest_nodes_gives_the_rate_with_its_rounds_as_the_range(tmp_path: Path) -> None:
    (found,) = bench_rates(scaling(tmp_path, noise=0.05), record())
    rate = found.images_s
    assert (rate.low, rate.value, rate.high) == pytest.approx((32 / 0.105, 32 / 0.1, 32 / 0.095), rel=1e-3)
    assert (found.network, found.instance_type, found.nodes, found.embedded) == ("lenet", "c5.2xlarge", 1, False)
    assert bench_rates(scaling(tmp_path, "unknown"), record(origin={"instance_types": {}})) == []


def cells(directory: Path, *times: tuple[float, ...], **values: list[Any]) -> Bench:
    """Return a benchmark of cells on one node with these times; each cell has its own values."""
    found = [event(TRAINING, 1, each) for each in times]
    for name, each in values.items():
        for lines, value in zip(found, each, strict=True):
            for line in lines:
                line["cell"][name] = value
    return read_bench(written(directory, found))


def test_largest_batch_of_each_precision_counts(tmp_path: Path) -> None:
    precisions = ["float32", "float32", "bfloat16"]
    times = ((0.05,), (0.2,), (0.1,))
    found = bench_rates(cells(tmp_path, *times, batch_per_rank=[1, 64, 32], precision=precisions), record())
    rates = {each.precision: each.images_s.value for each in found}
    assert rates == pytest.approx({"float32": 64 / 0.2, "bfloat16": 32 / 0.1}, rel=1e-3)


def test_cell_whose_rounds_differ_too_much_is_left_out(tmp_path: Path) -> None:
    (found,) = bench_rates(cells(tmp_path, (0.2, 0.21, 1.1), (0.1, 0.11), batch_per_rank=[64, 32]), record())
    assert found.images_s.value == pytest.approx(32 / 0.105, rel=1e-3)
    (tmp_path / "none").mkdir()
    assert bench_rates(cells(tmp_path / "none", (0.1,), batch_per_rank=[0]), record()) == []


def test_wait_for_gradients_on_several_nodes_is_not_computation(tmp_path: Path) -> None:
    (found,) = bench_rates(read_bench(written(tmp_path, [event(TRAINING, 2, [0.11] * 3)])), record())
    assert found.images_s.value > 32 / 0.11
