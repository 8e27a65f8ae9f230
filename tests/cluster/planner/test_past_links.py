"""Facts about the link between nodes that a benchmark's allreduces tell: those of a ring give its own figures back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from agent.spec.states import RECORD_FILE
from cluster.bench.measurements import Bench, Measurement
from cluster.planner.assumptions import assume
from cluster.planner.calibration import read_calibration
from cluster.planner.communication import Ring
from cluster.planner.hardware import hardware_of
from cluster.planner.past_links import Links, PastLink, PastRing, bench_link
from cluster.planner.recipe_workload import workload_of
from payload.recipes.digits import DIGITS
from payload.settings.bench import ALLREDUCE, MESSAGE_BYTES, Cell
from tests.cluster.bench.benches import event, written
from tests.cluster.planner.test_past_runs import record

HARDWARE = hardware_of("c5.2xlarge")
WORKLOAD = workload_of(DIGITS.settings, 2)
TOGETHER = {"efa": False, "placement_group": True}


def ring_of(nodes: int, ranks_per_node: int, bytes_s: float, hop_s: float) -> Ring:
    return Ring(
        nodes=nodes, ranks_per_node=ranks_per_node, between_bytes_s=bytes_s, between_hop_s=hop_s, within_bytes_s=1e12,
        within_hop_s=0.0,
    )  # fmt: skip


def measured(
    *rings: Ring, sizes: Sequence[int] = MESSAGE_BYTES, rounds: Sequence[float] = (1.0, 1.0, 1.0), cycle_s: float = 0.0
) -> Bench:
    """Return a benchmark whose allreduces take what the model says of these rings, times a factor in each round.

    `cycle_s`: Horovod's, for which each waits besides.
    """
    sums = tuple(
        Measurement(
            cell=Cell(kind=ALLREDUCE, message_bytes=size, nodes=ring.nodes),
            ranks=ring.nodes * ring.ranks_per_node,
            seconds=tuple(cycle_s + factor * ring.seconds(size) for factor in rounds),
        )
        for size in sizes
        for ring in rings
    )
    origin = {"tuning": {"cycle_time_ms": 1e3 * cycle_s}} if cycle_s else {}
    return Bench(run_id="bench", measurements=sums, origin=origin)


def past_ring(ring: Ring, rounds: Sequence[float] = (0.8, 1.0, 1.25)) -> PastRing:
    times = tuple(tuple(factor * ring.seconds(size) for factor in rounds) for size in MESSAGE_BYTES)
    return PastRing(ranks=ring.nodes * ring.ranks_per_node, sizes=MESSAGE_BYTES, seconds=times)


def past_link(bytes_s: float = 1e9, **other: Any) -> PastLink:
    known: dict[str, Any] = {
        "run_id": "new", "finished": 1_795_000_000.0, "instance_type": "c5.2xlarge", "ranks_per_node": 1,
        "embedded": False, "efa": False, "together": True, "rings": {4: past_ring(ring_of(4, 1, bytes_s, 1e-4))},
    }  # fmt: skip
    return PastLink(**{**known, **other})


@given(
    nodes=st.integers(2, 64),
    ranks_per_node=st.integers(1, 8),
    bytes_s=st.floats(1e7, 5e10),
    hop_s=st.floats(1e-6, 1e-2),
    size=st.integers(1, 1 << 30),
)
def test_the_allreduces_of_a_ring_give_its_time_back_for_every_size(
    nodes: int, ranks_per_node: int, bytes_s: float, hop_s: float, size: int
) -> None:
    ring = ring_of(nodes, ranks_per_node, bytes_s, hop_s)
    found = bench_link(measured(ring), record(origin={"config": TOGETHER}))
    assert found is not None
    figures = found.figures(size)
    assert figures is not None
    bandwidth, hop = figures
    again = ring_of(nodes, ranks_per_node, bandwidth.value, hop.value)
    assert again.seconds(size) == pytest.approx(ring.seconds(size), rel=1e-3)
    assert (found.nodes, found.ranks_per_node, found.efa, found.together) == (nodes, ranks_per_node, False, True)


def test_the_largest_ring_gives_the_values_and_all_of_them_the_range() -> None:
    bench = measured(ring_of(2, 1, 2e9, 1e-4), ring_of(4, 1, 1e9, 3e-4))
    found = bench_link(bench, record())
    assert found is not None
    figures = found.figures(1 << 20)
    assert figures is not None
    bandwidth, hop = figures
    assert (found.nodes, bandwidth.value, hop.value) == pytest.approx((4, 1e9, 3e-4))
    assert (bandwidth.high, hop.low) == pytest.approx((2e9, 1e-4))


def test_the_slowest_and_the_quickest_round_are_the_range() -> None:
    found = bench_link(measured(ring_of(2, 1, 1e9, 1e-4), rounds=(0.8, 1.0, 1.25)), record())
    assert found is not None
    figures = found.figures(1 << 20)
    assert figures is not None
    bandwidth, hop = figures
    assert bandwidth.low == pytest.approx(1e9 / 1.25, rel=0.01)
    assert bandwidth.high == pytest.approx(1e9 / 0.8, rel=0.01)
    assert (hop.low, hop.high) == pytest.approx((8e-5, 1.25e-4), rel=0.01)


def test_the_wait_for_the_cycle_is_not_the_link_s() -> None:
    found = bench_link(measured(ring_of(4, 1, 1e9, 1e-4), cycle_s=5e-3), record())
    assert found is not None
    figures = found.figures(1 << 20)
    assert figures is not None
    bandwidth, hop = figures
    assert (bandwidth.value, hop.value) == pytest.approx((1e9, 1e-4))


@pytest.mark.parametrize("size", [1 << 10, 1 << 14, 50_000, 1 << 18, 1_600_000, 1 << 22, 1 << 24])
def test_times_that_lie_on_no_line_are_met_at_each_size_and_between_them(size: int) -> None:
    # Four hosts over 100 Mbit/s, with a fifth of a core each: a short sum takes as long as their pauses.
    sizes, seconds = (1 << 10, 1 << 14, 1 << 18, 1 << 22), (15.8e-3, 21.2e-3, 33.8e-3, 651.8e-3)
    ring = PastRing(ranks=4, sizes=sizes, seconds=tuple((each,) for each in seconds))
    figures = ring.figures(size)
    assert figures is not None
    bandwidth, hop = figures
    slope = (seconds[3] - seconds[2]) / (sizes[3] - sizes[2])
    expected = np.interp(size, sizes, seconds) if size <= sizes[-1] else seconds[3] + slope * (size - sizes[3])
    assert ring_of(4, 1, bandwidth.value, hop.value).seconds(size) == pytest.approx(float(expected), rel=1e-6)


def test_a_short_sum_that_took_longer_than_a_longer_one_is_passed_over_where_another_tells() -> None:
    seconds = ((25e-3,), (15e-3,), (34e-3,), (652e-3,))
    ring = PastRing(ranks=4, sizes=(1 << 10, 1 << 14, 1 << 18, 1 << 22), seconds=seconds)
    figures = ring.figures(2000)
    assert figures is not None
    assert 10e-3 < ring_of(4, 1, figures[0].value, figures[1].value).seconds(2000) < 26e-3
    backwards = PastRing(ranks=4, sizes=(1 << 10, 1 << 20), seconds=((2e-3,), (1e-3,)))
    assert backwards.figures(1 << 10) is None


def test_gradients_below_the_sums_measured_have_figures_or_the_assumed_ones_count() -> None:
    # Through these two, a sum of LeNet's gradients would take less than no time.
    steep = PastRing(ranks=2, sizes=(1 << 22, 1 << 26), seconds=((1e-3,), (50e-3,)))
    figures = steep.figures(1.7e6)
    assert figures is not None
    bandwidth, hop = figures
    assert (hop.value, 0 < ring_of(2, 1, bandwidth.value, 0.0).seconds(1.7e6) < 1e-3) == (0.0, True)
    silent = PastRing(ranks=2, sizes=(1 << 10, 1 << 20), seconds=((2e-3,), (1e-3,)))
    assert applied(past_link(rings={2: silent})) == assume(WORKLOAD, HARDWARE)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(times=[1.0, 1.0, 1.0, 16.0], ratio=8)
@given(times=st.lists(st.floats(1e-9, 1e3), min_size=4, max_size=4), ratio=st.sampled_from([1, 4, 8, 1 << 16]))
def test_whatever_was_measured_gives_figures_in_order_or_none(times: list[float], ratio: int) -> None:
    sizes = (1 << 10, ratio << 10)
    sums = tuple(
        Measurement(cell=Cell(kind=ALLREDUCE, message_bytes=size, nodes=2), ranks=2, seconds=(a, b))
        for size, (a, b) in zip(sizes, (times[:2], times[2:]), strict=True)
    )
    found = bench_link(Bench(run_id="bench", measurements=sums, origin={}), record())
    if found is None:
        return
    assert ratio >= 8
    for size in (1, 1 << 10, 1 << 12, 1 << 30):
        for span in found.figures(size) or ():
            assert 0 <= span.low <= span.value <= span.high
    place = {"efa": False, "together": False, "embedded": False}
    Links(found=(found,)).apply(assume(WORKLOAD, HARDWARE), WORKLOAD, HARDWARE, **place)


@pytest.mark.parametrize(
    ("bench", "origin"),
    [
        pytest.param(measured(ring_of(2, 1, 1e9, 1e-4), sizes=(1 << 10,)), {}, id="one size"),
        pytest.param(measured(ring_of(2, 1, 1e9, 1e-4), sizes=(1 << 10, 1 << 12)), {}, id="sizes too close"),
        pytest.param(measured(), {}, id="no allreduce"),
        pytest.param(measured(ring_of(2, 1, 1e9, 1e-4)), {"instance_types": {}}, id="type unknown"),
    ],
)
def test_a_benchmark_that_does_not_tell_bandwidth_from_latency_gives_no_link(bench: Bench, origin: Any) -> None:
    assert bench_link(bench, record(origin=origin)) is None


def applied(*found: PastLink, **other: bool) -> Any:
    place = {"efa": False, "together": True, "embedded": False, **other}
    return Links(found=found).apply(assume(WORKLOAD, HARDWARE), WORKLOAD, HARDWARE, **place)


def test_the_newest_benchmark_gives_the_link_and_names_itself() -> None:
    older = past_link(run_id="old", finished=1_794_000_000.0, bytes_s=6e8)
    figure = applied(past_link(), older).between_bytes_s
    assert (figure.low, figure.value, figure.high) == pytest.approx((6e8 / 1.25, 1e9, 1e9 / 0.8))
    assert figure.evidence == "calibrated"
    assert figure.source == "run new of 2026-11-18, allreduces on 4 x c5.2xlarge; the range is that of 2 runs"
    assert applied(past_link()).between_hop_s.value == pytest.approx(1e-4)


@pytest.mark.parametrize(
    "other",
    [{"instance_type": "c5.4xlarge"}, {"ranks_per_node": 4}, {"embedded": True}, {"efa": True}, {"together": False}],
)
def test_nodes_of_another_kind_or_fabric_say_nothing(other: dict[str, Any]) -> None:
    assert applied(past_link(**other)) == assume(WORKLOAD, HARDWARE)
    assert applied(past_link(efa=True), efa=True).between_bytes_s.value == pytest.approx(1e9)


def test_what_an_earlier_run_waited_for_a_slow_link_does_not_count_as_its_computation(tmp_path: Path) -> None:
    run = record()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / RECORD_FILE).write_text(json.dumps(run))
    (alone,) = read_calibration(tmp_path).rates
    slow = ring_of(2, 1, 5e7, 1e-3)
    cells = [event(ALLREDUCE, 2, [slow.seconds(size)] * 3, message_bytes=size) for size in MESSAGE_BYTES]
    bench = written(tmp_path, cells)
    bench_run = {**run, "run_id": "bench", **{name: {**run[name], "run_id": "bench"} for name in ("state", "spec")}}
    (bench / RECORD_FILE).write_text(json.dumps(bench_run))
    found = read_calibration(tmp_path)
    assert [each.run_id for each in found.links.found] == ["bench"]
    assert found.rates[0].value > alone.value
    hardware = dataclasses.replace(HARDWARE, ranks_per_node=1)
    together = found.links.found[0].together
    figures = found.apply(assume(WORKLOAD, hardware), WORKLOAD, hardware, efa=False, together=together)
    assert figures.between_bytes_s.value == pytest.approx(5e7, rel=1e-3)
    assert figures.images_s.value == found.rates[0].value


def test_a_benchmark_without_tuning_says_nothing_of_runs_which_are_tuned(tmp_path: Path) -> None:
    link, run = ring_of(2, 1, 5e7, 1e-3), record()
    cells = [event(ALLREDUCE, 2, [link.seconds(size)] * 3, message_bytes=size) for size in MESSAGE_BYTES]
    for name, arguments in (("tuned", ()), ("untuned", ("--tuning", "defaults"))):
        own = {**run, "run_id": name, **{part: {**run[part], "run_id": name} for part in ("state", "spec")}}
        (written(tmp_path, cells, name, arguments) / RECORD_FILE).write_text(json.dumps(own))
    assert [each.run_id for each in read_calibration(tmp_path).links.found] == ["tuned"]
