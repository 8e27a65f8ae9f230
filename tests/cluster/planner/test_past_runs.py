"""Facts about the rate and the start-up of a run by its record: one recorded on the embedded cloud, and others."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cluster.planner.assumptions import assume
from cluster.planner.hardware import hardware_of
from cluster.planner.past_runs import past_rate, past_start, rate_of
from cluster.planner.recipe_workload import workload_of
from cluster.planner.run_time import Cluster, run_seconds
from payload.recipes.digits import DIGITS
from payload.settings import Settings
from tests.cluster.report import recorded_runs

HOSTS = [host["instance_id"] for host in recorded_runs.raw()["spec"]["hosts"]]


def record(**parts: Any) -> dict[str, Any]:
    """Return the recorded run, of nodes that are called c5.2xlarge, with other parts."""
    found = copy.deepcopy(recorded_runs.raw())
    found["origin"] |= {
        "endpoint": "",
        "instance_types": {h["instance_id"]: "c5.2xlarge" for h in found["spec"]["hosts"]},
    }
    for name, value in parts.items():
        found[name] = {**(found.get(name) or {}), **value} if isinstance(value, dict) else value
    return found


def test_a_run_gives_the_rate_with_which_the_model_takes_as_long() -> None:
    rate, result = past_rate(record()), record()["result"]
    assert rate is not None
    assert (rate.network, rate.precision, rate.instance_type) == ("lenet", "float32", "c5.2xlarge")
    assert (rate.ranks_per_node, rate.nodes, rate.embedded) == (1, 2, False)
    hardware = dataclasses.replace(hardware_of("c5.2xlarge"), ranks_per_node=1)
    workload = workload_of(DIGITS.settings, 2)
    assumed = assume(workload, hardware, placement_group=False)
    parts = run_seconds(workload, Cluster(hardware=hardware, nodes=2), assumed.at("images_s", rate.value))
    assert parts.compute + parts.communication == pytest.approx(result["training_seconds"], rel=1e-4)


@pytest.mark.parametrize(("endpoint", "embedded"), [("", False), ("http://127.0.0.1:4566", True), (None, True)])
def test_nodes_count_as_an_embedded_cloud_s_unless_the_record_says_that_aws_made_them(
    endpoint: str | None, embedded: bool
) -> None:
    found = past_rate(record(origin={"endpoint": endpoint}))
    assert found is not None
    assert found.embedded == embedded


def test_the_range_of_a_rate_is_that_of_its_epochs_without_the_first() -> None:
    epochs = [9.0, *[1.0] * 17, 0.5, 2.0]
    rate = past_rate(record(result={"epoch_seconds": epochs}))
    assert rate is not None
    assert (rate.low / rate.value, rate.high / rate.value) == pytest.approx((0.5, 2.0))


def test_the_start_up_is_all_beside_the_epochs() -> None:
    found = record()
    start = past_start(found)
    assert start is not None
    took = found["state"]["updated"] - found["state"]["started"]
    assert start.seconds == pytest.approx(took - sum(found["result"]["epoch_seconds"]))


@pytest.mark.parametrize(
    "parts",
    [
        {"state": {"state": "failed"}},
        {"attempts": 2},
        {"course": {"restarts": [{"for": "a node"}]}},
        {"result": {"resumed_from": "step-00000100"}},
        {"result": {"settings": {"epochs": 0}}},
        {"result": {"settings": []}},
        {"result": {"epoch_seconds": "many"}},
        {"result": {"epoch_seconds": [1.0, 2.0]}},
        {"result": {"training_seconds": 1e-9}},
        {"origin": {"instance_types": {}}},
        {"origin": {"instance_types": {HOSTS[0]: "c5.2xlarge", HOSTS[1]: "c5.4xlarge"}}},
        {"origin": {"instance_types": dict.fromkeys(HOSTS, "c5.2xlrge")}},
        {"origin": {"instance_types": "c5.2xlarge"}},
        {"spec": {"hosts": []}},
        {"result": {"ranks": 3}},
    ],
)
def test_a_run_that_tells_no_rate_is_passed_over(parts: dict[str, Any]) -> None:
    assert past_rate(record(**parts)) is None


@given(rate=st.floats(0.1, 1e5), nodes=st.integers(1, 8), network=st.sampled_from(["lenet", "resnet50", "vgg16"]))
def test_the_rate_of_a_modelled_run_is_the_one_that_it_was_modelled_with(rate: float, nodes: int, network: str) -> None:
    hardware = hardware_of("c5.2xlarge")
    cluster = Cluster(hardware=hardware, nodes=nodes)
    workload = workload_of(Settings(network=network, dataset="synthetic", batch_per_rank=32, epochs=2), nodes)
    assumed = assume(workload, hardware)
    parts = run_seconds(workload, cluster, assumed.at("images_s", rate))
    found = rate_of(parts.compute + parts.communication + parts.input, workload, cluster, assumed)
    if parts.compute > 0.05 * parts.communication:
        assert found == pytest.approx(rate, rel=1e-3)
    else:
        assert found is None or found == pytest.approx(rate, rel=1e-2)
