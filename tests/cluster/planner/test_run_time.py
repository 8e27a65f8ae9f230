"""The duration of a run: facts and general laws."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.planner.assumptions import Assumptions, assume
from cluster.planner.figure import exact
from cluster.planner.hardware import hardware_of
from cluster.planner.run_time import Cluster, run_seconds
from cluster.planner.workload import PAYLOAD, Phase, Workload
from tests.cluster.planner.fast_ai_2018 import DAWNBENCH

P4D, C5 = hardware_of("p4d.24xlarge"), hardware_of("c5.2xlarge")
RUN = Workload(
    network="resnet50",
    precision="float16",
    gradient_bytes=51_114_064,
    training_images=1_281_167,
    evaluated_images=50_000,
    phases=(Phase(epochs=90, size=224, global_batch=8192),),
    jpeg=False,
    program=PAYLOAD,
)


def assumed(workload: Workload = RUN) -> Assumptions:
    """Return assumptions with a round rate and no start-up time."""
    found = assume(workload, P4D, efa=True).at("start_up_s", 0.0)
    return dataclasses.replace(found, images_s=exact(1000, "cited", "a test"))


def test_one_rank_takes_its_images_at_its_rate() -> None:
    one = dataclasses.replace(P4D, gpus=1)
    parts = run_seconds(RUN, Cluster(hardware=one, nodes=1), assumed())
    assert parts.compute == pytest.approx(90 * 1281.167)
    assert parts.evaluation == pytest.approx(90 * 50 / 3.5)
    assert parts.total == pytest.approx(parts.compute + parts.evaluation)
    assert parts.bottleneck == "compute"


def test_phases_add_up() -> None:
    first, second = Phase(epochs=3, size=128, global_batch=8192), Phase(epochs=2, size=224, global_batch=4096)
    cluster = Cluster(hardware=P4D, nodes=2)
    both, one, other = (
        run_seconds(dataclasses.replace(RUN, phases=phases), cluster, assumed())
        for phases in ((first, second), (first,), (second,))
    )
    assert both.total == pytest.approx(one.total + other.total)


def test_slow_decoding_limits_a_run_with_any_gpus() -> None:
    jpeg = dataclasses.replace(RUN, jpeg=True)
    slow = dataclasses.replace(assumed(), decode_images_s=exact(1, "cited", "a test"))
    parts = run_seconds(jpeg, Cluster(hardware=P4D, nodes=1), slow)
    assert parts.bottleneck == "input"
    assert parts.total == pytest.approx(90 * (1_281_167 + 50_000) / 96)


def test_smaller_stored_images_are_decoded_quicker() -> None:
    slow = dataclasses.replace(assumed(), decode_images_s=exact(1, "cited", "a test"))
    times = [
        run_seconds(
            dataclasses.replace(
                RUN, jpeg=True, phases=(Phase(epochs=1, size=128, global_batch=8192, stored_side=side),)
            ),
            Cluster(hardware=P4D, nodes=1),
            slow,
        ).total
        for side in (0, 387, 160, 80)
    ]
    assert times[0] == times[1]
    assert times[1] / times[2] == pytest.approx((387 / 160) ** 2)
    assert times[2] > times[3]


def test_first_batch_of_each_epoch_is_awaited() -> None:
    run = DAWNBENCH[3]
    many = dataclasses.replace(
        run.workload, program=dataclasses.replace(run.workload.program, batch_by_one_worker=False)
    )
    p3 = hardware_of("p3.16xlarge")
    with_wait, without = (
        run_seconds(each, Cluster(hardware=p3, nodes=16), assume(each, p3)) for each in (run.workload, many)
    )
    assert with_wait.input > without.input
    assert with_wait.compute == without.compute


def test_ranks_on_cpus_wait_for_chosen_cycle_time() -> None:
    run = dataclasses.replace(RUN, network="lenet", precision="float32", gradient_bytes=4)
    parts = run_seconds(run, Cluster(hardware=C5, nodes=2), assume(run, C5))
    assert parts.communication > 0


@given(nodes=st.integers(1, 64), rate=st.floats(10, 1e4), slower=st.floats(1, 10))
def test_slower_gpu_or_link_never_makes_a_run_quicker(nodes: int, rate: float, slower: float) -> None:
    cluster = Cluster(hardware=P4D, nodes=nodes)
    base = assumed().at("images_s", rate)
    time = run_seconds(RUN, cluster, base).total
    link = base.between_bytes_s.value / slower
    assert run_seconds(RUN, cluster, base.at("images_s", rate / slower)).total >= time * 0.9999
    assert run_seconds(RUN, cluster, base.at("between_bytes_s", link)).total >= time * 0.9999
