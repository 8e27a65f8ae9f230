"""The network as it is exported: from images as they are in files to probabilities, of Keras's own layers alone."""

from __future__ import annotations

from typing import Any

import keras


def serving_model(network: Any, *, in_float32: bool = False) -> Any:
    """Return a network that takes bytes and gives probabilities, of Keras's own layers alone.

    `in_float32`: with layers that compute in float32 where the network's compute in half precision.
    """
    own = keras.models.clone_model(network, clone_function=_stock_in_float32 if in_float32 else _stock)
    own.set_weights(network.get_weights())
    images = keras.layers.Input(network.input_shape[1:], dtype="uint8", name="images")
    pixels = keras.layers.Rescaling(1 / 255, dtype="float32", name="pixels")(images)
    probabilities = keras.layers.Softmax(dtype="float32", name="probabilities")(own(pixels))
    return keras.Model(images, probabilities, name=f"{network.name}_served")


def _stock(layer: Any) -> Any:
    """Return the layer as the Keras layer that it derives from, so that the files load without this project."""
    return _keras_class(layer).from_config(layer.get_config())


def _stock_in_float32(layer: Any) -> Any:
    return _keras_class(layer).from_config(_in_float32(layer.get_config()))


def _in_float32(config: dict[str, Any]) -> dict[str, Any]:
    """Return a layer's configuration, those of layers within it included, computing in float32."""
    changed = {name: _in_float32(value) if isinstance(value, dict) else value for name, value in config.items()}
    return changed | {"dtype": "float32"} if "dtype" in config else changed


def _keras_class(layer: Any) -> Any:
    return next(kind for kind in type(layer).__mro__ if kind.__module__.startswith("keras."))
