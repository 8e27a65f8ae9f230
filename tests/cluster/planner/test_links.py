"""Facts about the links between ranks."""

from __future__ import annotations

import pytest

from cluster.planner.hardware import hardware_of
from cluster.planner.links import between_nodes, within_node

P3, P4D, C5 = (hardware_of(name) for name in ("p3.16xlarge", "p4d.24xlarge", "c5.2xlarge"))


def gbit_s(bytes_s: float) -> float:
    """Return a rate as networks are sold."""
    return bytes_s * 8e-9


def test_tcp_carries_what_one_flow_may_which_a_placement_group_doubles() -> None:
    inside = between_nodes(P3, efa=False, placement_group=True).bytes_s
    outside = between_nodes(P3, efa=False, placement_group=False).bytes_s
    assert gbit_s(inside.value) == pytest.approx(10)
    assert gbit_s(outside.value) == pytest.approx(5)
    assert gbit_s(inside.high) == pytest.approx(16), "NCCL has several flows"
    assert "in a placement group" in inside.source


def test_efa_carries_most_of_the_network_and_only_where_the_type_has_it() -> None:
    assert gbit_s(between_nodes(P4D, efa=True, placement_group=True).bytes_s.value) == pytest.approx(300)
    assert gbit_s(between_nodes(P3, efa=True, placement_group=True).bytes_s.value) == pytest.approx(10)


def test_gloo_adds_up_slower_than_networks_are_and_a_peak_may_not_last() -> None:
    link = between_nodes(C5, efa=False, placement_group=True).bytes_s
    assert gbit_s(link.value) == pytest.approx(6)
    assert gbit_s(link.low) == pytest.approx(2.5)


def test_within_a_node_nvlink_is_quicker_than_pci_express_and_cores_slowest() -> None:
    nvlink, bus, cores = (within_node(each).bytes_s.value for each in (P4D, hardware_of("g6.48xlarge"), C5))
    assert nvlink > bus > cores
