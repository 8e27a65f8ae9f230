"""The compute rate of one rank."""

from __future__ import annotations

import pytest

from cluster.planner.compute_rates import images_s
from cluster.planner.hardware import Hardware, hardware_of
from payload.recipes.recipe_times import NODES


def gpu(name: str) -> Hardware:
    """Return a node with one such GPU."""
    return Hardware(instance_type="x", gpus=1, gpu=name, vcpus=8, cores=4, network_gbit_s=10)


def test_v100_rate_is_published_and_its_range_includes_newer_software() -> None:
    rate = images_s("resnet50", "float16", hardware_of("p3.16xlarge"))
    assert rate.value == pytest.approx(5815.8 / 8)
    assert rate.evidence == "cited"
    assert rate.high == pytest.approx(9510 / 8)


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.gpu)
def test_rates_match_the_recipes(node: object) -> None:
    assert images_s("resnet50", "float16", gpu(node.gpu)).value == pytest.approx(node.images_s / 8)  # type: ignore[attr-defined]


def test_h200_rate_is_measured_and_within_the_h100_range() -> None:
    rates = {name: images_s("resnet50", "float16", gpu(name)) for name in ("H200", "H100", "L40S")}
    assert (rates["H200"].value, rates["H200"].evidence) == (2340, "measured")
    assert rates["H100"].low < rates["H200"].value * 3350 / 4800
    assert rates["L40S"].low == pytest.approx(rates["L40S"].value / 2)


def test_float32_on_an_h200_is_tf32() -> None:
    assert images_s("resnet50", "float32", gpu("H200")).value == pytest.approx(1953)


def test_other_networks_are_scaled_by_benchmark_or_operations() -> None:
    base = images_s("resnet50", "float16", gpu("A100"))
    vgg = images_s("vgg16", "float16", gpu("A100"))
    assert vgg.value == pytest.approx(base.value * 154 / 219)
    assert vgg.evidence == "estimated"
    assert images_s("googlenet", "float16", gpu("A100")).value > base.value
    assert vgg.low / vgg.value < base.low / base.value


def test_float32_slowdown_is_the_published_one() -> None:
    rates = [images_s("resnet50", precision, gpu("V100")).value for precision in ("float16", "float32")]
    assert rates[0] / rates[1] == pytest.approx(2.035, rel=0.001)


def test_cores_are_counted_by_the_measured_rate() -> None:
    rate = images_s("lenet", "float32", hardware_of("c5.2xlarge"))
    assert rate.value == pytest.approx(4 * 60e9 / (6 * 2_293_000))
    assert rate.low < 4 * 3406 < rate.high, "images/s of one rank on one core of a Xeon"


def test_unknown_gpu_and_network_are_reported() -> None:
    with pytest.raises(LookupError, match="the speed of the GPU K80 is unknown; the known GPUs are V100"):
        images_s("resnet50", "float16", gpu("K80"))
    with pytest.raises(LookupError, match="the number of operations of network nonet is unknown"):
        images_s("nonet", "float32", hardware_of("c5.2xlarge"))
