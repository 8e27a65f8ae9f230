"""The links between ranks, and the time of an allreduce over them."""

from __future__ import annotations

import pytest

from cluster.planner.communication import between_nodes, grouped_seconds, ring_seconds
from cluster.planner.hardware import hardware_of

P3, P4D, C5 = (hardware_of(name) for name in ("p3.16xlarge", "p4d.24xlarge", "c5.2xlarge"))
GRADIENTS = 51_114_064
"""Bytes of ResNet-50's gradients in half precision."""


def gbit_s(bytes_s: float) -> float:
    """Return a rate in Gbit/s."""
    return bytes_s * 8e-9


def test_placement_group_doubles_what_one_tcp_flow_carries() -> None:
    inside = between_nodes(P3, efa=False, placement_group=True).bytes_s
    outside = between_nodes(P3, efa=False, placement_group=False).bytes_s
    assert (gbit_s(inside.value), gbit_s(outside.value)) == pytest.approx((10, 5))
    assert gbit_s(inside.high) == pytest.approx(16), "NCCL has several flows"
    assert "in a placement group" in inside.source


def test_efa_reaches_most_of_network_bandwidth_on_supported_types() -> None:
    assert gbit_s(between_nodes(P4D, efa=True, placement_group=True).bytes_s.value) == pytest.approx(300)
    assert gbit_s(between_nodes(P3, efa=True, placement_group=True).bytes_s.value) == pytest.approx(10)


def test_gloo_is_slower_than_the_network_and_a_peak_may_not_last() -> None:
    link = between_nodes(C5, efa=False, placement_group=True).bytes_s
    assert (gbit_s(link.value), gbit_s(link.low)) == pytest.approx((6, 2.5))


def test_ring_sends_almost_twice_the_gradients() -> None:
    assert ring_seconds(GRADIENTS, 32, 1.25e9, 50e-6) == pytest.approx(2 * 31 / 32 * GRADIENTS / 1.25e9 + 62 * 50e-6)


def test_group_larger_than_the_buffer_travels_in_parts() -> None:
    def seconds(fusion_bytes: float, ranks: int = 32) -> float:
        return grouped_seconds(GRADIENTS, ranks, 1.25e9, 50e-6, fusion_bytes=fusion_bytes, cycle_s=4e-3)

    whole = seconds(128 << 20)
    assert whole == pytest.approx(2e-3 + ring_seconds(GRADIENTS, 32, 1.25e9, 50e-6))
    assert seconds(GRADIENTS / 4) - whole == pytest.approx(3 * 62 * 50e-6)
    assert seconds(128 << 20, ranks=1) == 0
