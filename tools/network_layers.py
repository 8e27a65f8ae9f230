"""Write cluster/planner/layers.csv: of each network its layers with weights, which `fab plan` needs without TensorFlow.

    python -m tools.network_layers

Each line is a layer, in the order of the forward pass at the published size: its multiply-adds, and the number of
weights in each of its gradients.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

from cluster.planner.layers import TABLE, Layer, render
from payload.models.registry import NETWORKS, Network


def layers_of(network: Network) -> Iterator[Layer]:
    """Yield the layers of a network that have weights to train. Builds its Keras model."""
    import keras

    model = network.build(network.image_shape, network.classes)
    for layer in model._flatten_layers(include_self=False):
        gradients = tuple(math.prod(weight.shape) for weight in layer.trainable_weights)
        parts = layer._flatten_layers(include_self=False, recursive=False)
        recurrent = isinstance(layer, keras.layers.Bidirectional)  # what its parts compute is known of the whole
        if (parts and not recurrent) or isinstance(layer, keras.layers.LSTMCell) or not gradients:
            continue
        yield Layer(name=layer.name, multiply_adds=_multiply_adds(layer, keras), gradients=gradients)


def _multiply_adds(layer: Any, keras: Any) -> int:
    if isinstance(layer, keras.layers.Conv2D):
        return int(math.prod(layer.kernel.shape) * math.prod(layer.output.shape[1:3]))
    if isinstance(layer, keras.layers.Bidirectional):  # kernels of each step's input and of the last step's output
        kernels = [weight for weight in layer.trainable_weights if len(weight.shape) == 2]
        steps = (layer.input[0] if isinstance(layer.input, list) else layer.input).shape[1]  # a mask may come with it
        return int(steps * sum(math.prod(kernel.shape) for kernel in kernels))
    return int(math.prod(layer.kernel.shape)) if isinstance(layer, keras.layers.Dense) else 0


def main() -> int:
    """Write the table; print what it holds."""
    import keras

    keras.initializers.VarianceScaling.__call__ = keras.initializers.Zeros().__call__  # drawing weights takes longest
    found = {}
    for network in NETWORKS:
        found[network.name] = (network.image_size, tuple(layers_of(network)))
        keras.backend.clear_session()
    TABLE.write_text(render(found), encoding="utf-8")
    print(f"{TABLE}: {sum(len(layers) for _, layers in found.values())} layers of {len(found)} networks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
