"""Facts about how the table of layers is made."""

from __future__ import annotations

import pytest

from cluster.planner.layers import networks
from payload.models.registry import network
from tools.network_layers import layers_of

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("name", ["lenet", "lstm", "resnet20"])
def test_the_table_has_the_layers_of_the_built_network(name: str) -> None:
    assert tuple(layers_of(network(name))) == networks()[name].layers
