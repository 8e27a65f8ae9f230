"""Facts about the table of layers."""

from __future__ import annotations

import pytest

from cluster.planner import layers
from cluster.planner.layers import Layer, LayerTableError, networks, parse, render
from payload.models.registry import NETWORKS, Network
from payload.models.work import WORK


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_the_layers_of_each_network_add_up_to_its_weights_and_its_work(network: Network) -> None:
    table = networks()[network.name]
    assert table.weights == network.parameters
    assert table.multiply_adds == WORK[network.name].multiply_adds
    assert table.image_size == network.image_size


def test_gradients_are_ready_from_the_last_layer_to_the_first() -> None:
    ready = networks()["vgg16"].ready
    moments = [moment for moment, _ in ready]
    assert moments == sorted(moments)
    assert moments[-1] == pytest.approx(1)
    assert sum(part for _, part in ready) == pytest.approx(1)
    dense = sum(part for moment, part in ready if moment < 0.01)
    assert dense > 0.88, "VGG's dense layers: most of its weights, ready at once"


def test_a_table_is_read_as_it_was_written() -> None:
    found = (Layer(name="conv", multiply_adds=10, gradients=(9, 3)), Layer(name="bn", multiply_adds=0, gradients=(3,)))
    read = parse(render({"net": (28, found)}).splitlines())
    assert (read["net"].image_size, read["net"].layers) == (28, found)


@pytest.mark.parametrize(
    ("lines", "line", "rule"),
    [
        (["# net 28", "wrong"], 2, "the columns must be"),
        (["# net 28", layers.HEADER, "net,conv,ten,9"], 3, "is no line of the table"),
        (["# net", layers.HEADER], 1, "is no line of the table"),
        (["# net 28", layers.HEADER], 1, "size or layers are missing for net"),
        ([layers.HEADER, "net,conv,10,9"], 1, "size or layers are missing for net"),
    ],
)
def test_a_damaged_table_is_refused_with_its_line(lines: list[str], line: int, rule: str) -> None:
    with pytest.raises(LayerTableError, match=f"line {line}: .*{rule}"):
        parse(lines)
