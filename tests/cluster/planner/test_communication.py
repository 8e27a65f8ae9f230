"""Facts and laws of the time of an allreduce."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.planner.communication import Ring, exposed_seconds, grouped_seconds
from cluster.planner.layers import networks

RING = Ring(
    nodes=4, ranks_per_node=8, between_bytes_s=1.25e9, between_hop_s=50e-6, within_bytes_s=1e11, within_hop_s=1e-5
)
ALONE = Ring(nodes=1, ranks_per_node=1, between_bytes_s=1, between_hop_s=1, within_bytes_s=1, within_hop_s=1)
GRADIENTS = 51_114_064
"""Bytes of ResNet-50's in half precision."""


def exposed(network: str, compute_s: float, size: float, ring: Ring = RING, *, fusion: float = 128 << 20) -> float:
    """Return what a step waits for at Horovod's own cycle."""
    return exposed_seconds(networks()[network].ready, compute_s, size, ring, fusion_bytes=fusion, cycle_s=1e-3)


def test_a_ring_sends_almost_twice_the_gradients_at_the_pace_of_the_slowest_link() -> None:
    assert RING.seconds(GRADIENTS) == pytest.approx(2 * 31 / 32 * GRADIENTS / 1.25e9 + 62 * 50e-6)


def test_one_rank_reduces_nothing_and_one_node_knows_no_network() -> None:
    assert ALONE.seconds(1e9) == ALONE.hierarchical_seconds(1e9) == 0
    assert grouped_seconds(1e9, ALONE, fusion_bytes=1e6, cycle_s=1) == 0
    node = Ring(nodes=1, ranks_per_node=8, between_bytes_s=1, between_hop_s=1, within_bytes_s=1e10, within_hop_s=0)
    assert node.seconds(1e9) == pytest.approx(2 * 7 / 8 * 0.1)


def test_adding_up_within_nodes_first_saves_messages_where_there_are_many_ranks() -> None:
    many = Ring(
        nodes=128, ranks_per_node=8, between_bytes_s=1.25e9, between_hop_s=50e-6, within_bytes_s=1e11, within_hop_s=1e-5
    )
    assert many.hierarchical_seconds(GRADIENTS) < 0.6 * many.seconds(GRADIENTS)


def test_overlap_hides_what_fits_into_the_backward_pass() -> None:
    reduction = RING.seconds(GRADIENTS)
    assert exposed("resnet50", 100 * reduction, GRADIENTS) < 0.1 * reduction
    assert exposed("resnet50", 0.1 * reduction, GRADIENTS) > 0.8 * reduction


def test_vgg_hides_its_dense_layers_behind_its_convolutions() -> None:
    size = 2.0 * networks()["vgg16"].weights
    grouped = grouped_seconds(size, RING, fusion_bytes=128 << 20, cycle_s=1e-3)
    assert exposed("vgg16", 1.5 * grouped, size) < 0.2 * grouped


def test_without_a_buffer_every_gradient_travels_by_itself_and_pays_its_messages() -> None:
    assert exposed("resnet50", 0.01, GRADIENTS, fusion=0) > exposed("resnet50", 0.01, GRADIENTS) + 100 * 62 * 50e-6


def test_a_group_larger_than_the_buffer_goes_in_parts() -> None:
    whole = grouped_seconds(GRADIENTS, RING, fusion_bytes=128 << 20, cycle_s=0)
    parts = grouped_seconds(GRADIENTS, RING, fusion_bytes=GRADIENTS / 4, cycle_s=0)
    assert parts - whole == pytest.approx(3 * 62 * 50e-6)


@given(
    compute_s=st.floats(1e-4, 10),
    size=st.floats(1e3, 1e9),
    fusion=st.floats(0, 1e9),
    cycle_s=st.floats(0, 0.1),
    nodes=st.integers(1, 64),
)
def test_no_step_waits_less_than_the_last_gradient_takes_or_more_than_all_of_them_one_by_one(
    compute_s: float, size: float, fusion: float, cycle_s: float, nodes: int
) -> None:
    ring = Ring(
        nodes=nodes, ranks_per_node=2, between_bytes_s=1e9, between_hop_s=5e-5, within_bytes_s=1e10, within_hop_s=1e-5
    )
    ready = networks()["lenet"].ready
    found = exposed_seconds(ready, compute_s, size, ring, fusion_bytes=fusion, cycle_s=cycle_s)
    assert found >= ring.seconds(ready[-1][1] * size) * 0.999
    assert found <= sum(ring.seconds(part * size) + cycle_s for _, part in ready) * 1.001
