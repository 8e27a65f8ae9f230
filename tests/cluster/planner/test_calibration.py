"""How past runs replace estimated values."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from cluster.planner.assumptions import READY_START_UP_S, START_UP_S, Assumptions, assume
from cluster.planner.calibration import NOTHING, Calibration, PastLink, PastRate, PastRing, PastStart
from cluster.planner.communication import ring_seconds
from cluster.planner.figure import CITED, Figure, Range
from cluster.planner.hardware import hardware_of
from cluster.planner.workload import workload_of
from payload.recipes.digits import DIGITS

HARDWARE = hardware_of("c5.2xlarge")
WORKLOAD = workload_of(DIGITS.settings, 2)
ASSUMED = assume(WORKLOAD, HARDWARE)
NODES: dict[str, Any] = {
    "run_id": "new", "finished": 1_795_000_000.0, "instance_type": "c5.2xlarge", "ranks_per_node": 1, "embedded": False,
    "nodes": 2,
}  # fmt: skip
OLDER: dict[str, Any] = {"run_id": "old", "finished": 1_794_000_000.0}
SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 26)


def rate(low: float = 90.0, value: float = 100.0, high: float = 110.0, **other: Any) -> PastRate:
    known = {**NODES, "network": "lenet", "precision": "float32", **other}
    return PastRate(**known, images_s=Range(low=low, value=value, high=high))


def start(seconds: float = 20.0, **other: Any) -> PastStart:
    return PastStart(**{**NODES, **other}, seconds=Range(low=0.5 * seconds, value=seconds, high=1.5 * seconds))


def ring(
    ranks: int, bytes_s: float = 1e9, hop_s: float = 1e-4, rounds: tuple[float, ...] = (0.8, 1.0, 1.25)
) -> PastRing:
    """Return allreduces with the model's times for this ring, multiplied by a factor in each round."""
    times = tuple(tuple(factor * ring_seconds(size, ranks, bytes_s, hop_s) for factor in rounds) for size in SIZES)
    return PastRing(ranks=ranks, sizes=SIZES, seconds=times)


def link(*rings: PastRing, **other: Any) -> PastLink:
    known = {**NODES, "efa": False, "together": True, **other}
    by_nodes = {each.ranks // known["ranks_per_node"]: each for each in rings or (ring(4 * known["ranks_per_node"]),)}
    return PastLink(**{**known, "nodes": max(by_nodes)}, rings=by_nodes)


def assumed(
    *rates: PastRate, starts: tuple[PastStart, ...] = (), links: tuple[PastLink, ...] = (), **other: Any
) -> Assumptions:
    found = Calibration(rates=rates, starts=starts, links=links, embedded=other.pop("embedded", False))
    return found.assume(WORKLOAD, HARDWARE, **{"efa": False, "placement_group": True, **other})


def test_newest_run_gives_the_value_and_all_runs_the_range() -> None:
    figure = assumed(rate(), rate(60.0, 70.0, 150.0, **OLDER)).images_s
    assert (figure.low, figure.value, figure.high, figure.evidence) == (60.0, 100.0, 150.0, "calibrated")
    assert figure.source == "run new of 2026-11-18, on 2 x c5.2xlarge; the range is that of 2 runs"
    assert assumed(rate()).images_s.source.endswith("on 2 x c5.2xlarge")


@pytest.mark.parametrize("other", [{"instance_type": "c5.4xlarge"}, {"ranks_per_node": 4}, {"embedded": True}])
def test_other_kind_of_node_does_not_count(other: dict[str, Any]) -> None:
    assert assumed(rate(**other), links=(link(**other),)) == ASSUMED


def test_other_network_precision_or_fabric_does_not_count() -> None:
    assert assumed(rate(network="resnet50"), rate(precision="bfloat16")) == ASSUMED
    assert assumed(links=(link(efa=True), link(together=False))) == ASSUMED
    assert assumed(links=(link(efa=True),), efa=True).between_bytes_s.value == pytest.approx(1e9)


def test_runs_on_an_embedded_cloud_count_only_there() -> None:
    assert assumed(rate(embedded=True), embedded=True).images_s.value == 100.0
    assert assumed(rate(), embedded=True) == ASSUMED


def test_start_up_counts_if_the_nodes_are_up() -> None:
    starts = (start(), start(30.0, **OLDER))
    figure = assumed(starts=starts, nodes_are_up=True).start_up_s
    assert (figure.low, figure.value, figure.high) == (10.0, 20.0, 45.0)
    assert assumed(starts=starts).start_up_s == START_UP_S
    assert NOTHING.assume(WORKLOAD, HARDWARE, efa=False, placement_group=True, nodes_are_up=True).start_up_s == (
        READY_START_UP_S
    )


def test_newest_benchmark_gives_the_link_and_all_benchmarks_the_range() -> None:
    found = assumed(links=(link(), link(ring(4, bytes_s=6e8), **OLDER)))
    figure = found.between_bytes_s
    assert (figure.low, figure.value, figure.high) == pytest.approx((6e8 / 1.25, 1e9, 1e9 / 0.8))
    assert figure.source == "run new of 2026-11-18, allreduces on 4 x c5.2xlarge; the range is that of 2 runs"
    assert (found.between_hop_s.low, found.between_hop_s.value) == pytest.approx((0.8e-4, 1e-4))


def test_ring_of_same_size_counts_or_else_the_largest() -> None:
    both = link(ring(2, bytes_s=2e9, rounds=(1.0,)), ring(4, bytes_s=1e9, rounds=(1.0,)))
    found = both.link(1 << 20, 2), both.link(1 << 20, 8)
    assert found[0] and found[1]
    two, other = found[0][0], found[1][0]
    assert (two.low, two.value, two.high) == pytest.approx((2e9, 2e9, 2e9))
    assert (other.low, other.value, other.high) == pytest.approx((1e9, 1e9, 2e9))


def test_rounds_that_differ_too_much_are_left_out() -> None:
    assert assumed(links=(link(ring(4, rounds=(1.0, 1.0, 4.0))),)) == ASSUMED


@given(
    ranks=st.integers(2, 512),
    bytes_s=st.floats(1e7, 5e10),
    hop_s=st.floats(1e-6, 1e-2),
    size=st.integers(1, 1 << 30),
)
def test_ring_time_is_recovered_from_its_allreduces(ranks: int, bytes_s: float, hop_s: float, size: int) -> None:
    found = ring(ranks, bytes_s, hop_s).link(size)
    assert found is not None
    bandwidth, hop = found
    again = ring_seconds(size, ranks, bandwidth.value, hop.value)
    assert again == pytest.approx(ring_seconds(size, ranks, bytes_s, hop_s), rel=1e-3)


@pytest.mark.parametrize("size", [1 << 10, 1 << 14, 50_000, 1 << 18, 1_600_000, 1 << 22, 1 << 24])
def test_nonlinear_times_are_interpolated_between_sizes(size: int) -> None:
    # Four hosts with 100 Mbit/s and a fifth of a core each: a short sum takes as long as their pauses.
    sizes, seconds = (1 << 10, 1 << 14, 1 << 18, 1 << 22), (15.8e-3, 21.2e-3, 33.8e-3, 651.8e-3)
    found = PastRing(ranks=4, sizes=sizes, seconds=tuple((each,) for each in seconds)).link(size)
    assert found is not None
    slope = (seconds[3] - seconds[2]) / (sizes[3] - sizes[2])
    expected = np.interp(size, sizes, seconds) if size <= sizes[-1] else seconds[3] + slope * (size - sizes[3])
    assert ring_seconds(size, 4, found[0].value, found[1].value) == pytest.approx(float(expected), rel=1e-6)


def test_short_sum_that_took_longer_than_a_longer_one_is_skipped() -> None:
    seconds = ((25e-3,), (15e-3,), (34e-3,), (652e-3,))
    found = PastRing(ranks=4, sizes=(1 << 10, 1 << 14, 1 << 18, 1 << 22), seconds=seconds).link(2000)
    assert found is not None
    assert 10e-3 < ring_seconds(2000, 4, found[0].value, found[1].value) < 26e-3
    assert PastRing(ranks=4, sizes=(1 << 10, 1 << 20), seconds=((2e-3,), (1e-3,))).link(1 << 10) is None
    assert PastRing(ranks=4, sizes=(1 << 10, 1 << 12), seconds=((1e-3,), (2e-3,))).link(1 << 10) is None, "too close"


@example(times=[1.0, 1.0, 1.0, 1.6], size=1)
@example(times=[1e-3, 1e-3, 50e-3, 50e-3], size=1700)
@given(times=st.lists(st.floats(0, 1e3), min_size=4, max_size=4), size=st.integers(1, 1 << 30))
def test_any_measurement_gives_a_range_in_order_or_none(times: list[float], size: int) -> None:
    rounds = (tuple(times[:2]), tuple(times[2:]))
    for span in PastRing(ranks=2, sizes=(1 << 10, 1 << 20), seconds=rounds).link(size) or ():
        assert 0 <= span.low <= span.value <= span.high


def test_value_outside_of_its_range_is_rejected() -> None:
    with pytest.raises(ValueError, match="somewhere: the value 2 is not in its range, 3 to 4"):
        Figure(value=2, low=3, high=4, evidence=CITED, source="somewhere")
