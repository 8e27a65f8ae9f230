"""Facts about how far networks scale."""

from __future__ import annotations

from typing import Final

import pytest

from cluster.planner.hardware import hardware_of
from cluster.planner.sweep import BANDWIDTH, COUNTS, LATENCY, Links, Point, stops_at, sweep

P3, P4D = hardware_of("p3.16xlarge"), hardware_of("p4d.24xlarge")
HALF: Final = Links(gradient_bytes=2)


@pytest.mark.parametrize("network", ["resnet50", "inception-v3", "vgg16"])
def test_one_gpu_is_the_measure_and_none_does_better_on_more(network: str) -> None:
    points = sweep(network, P3, HALF)
    assert [point.gpus for point in points] == list(COUNTS)
    assert points[0].efficiency == pytest.approx(1)
    assert all(0 < point.efficiency <= 1.000001 for point in points)


def test_vgg_stops_at_the_first_link_for_its_bytes_and_the_others_late_for_their_messages() -> None:
    stops = {network: stops_at(sweep(network, P3, HALF)) for network in ("resnet50", "inception-v3", "vgg16")}
    assert stops == {"resnet50": (512, LATENCY), "inception-v3": (256, LATENCY), "vgg16": (8, BANDWIDTH)}


def test_a_network_with_much_work_for_each_weight_scales_best() -> None:
    on_128 = {network: sweep(network, P3, HALF)[7].efficiency for network in ("resnet50", "inception-v3", "vgg16")}
    assert on_128["inception-v3"] > on_128["resnet50"] > on_128["vgg16"]


def test_nodes_that_add_up_first_scale_further() -> None:
    for network in ("resnet50", "inception-v3"):
        one_ring = sweep(network, P3, HALF)[-1]
        nodes_first = sweep(network, P3, Links(gradient_bytes=2, hierarchical=True))[-1]
        assert nodes_first.efficiency > 1.5 * one_ring.efficiency
        assert nodes_first.latency_s < one_ring.latency_s / 3


def test_efa_lets_vgg_scale_and_half_precision_halves_what_it_waits_for() -> None:
    assert sweep("vgg16", P4D, Links(gradient_bytes=2, efa=True))[4].efficiency > 0.9
    single = sweep("vgg16", P3, Links(gradient_bytes=4))[4].waited_s
    assert single > 1.5 * sweep("vgg16", P3, HALF)[4].waited_s


def test_what_never_gains_too_little_does_not_stop() -> None:
    points = [Point(gpus=n, images_s=float(n), efficiency=1, waited_s=0, bandwidth_s=0, latency_s=0) for n in (1, 2, 4)]
    assert stops_at(points) is None
    assert stops_at(points[:1]) is None
