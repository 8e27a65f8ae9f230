"""Build the network for export: from image bytes to probabilities, with only Keras's own layers."""

from __future__ import annotations

from typing import Any

import keras


def serving_model(network: Any, *, in_float32: bool = False) -> Any:
    """Return a copy of a network that takes pixels, uint8, and returns probabilities, with only Keras's own layers.

    `network` takes pixels, 0 to 1, and returns logits. `in_float32`: let layers with half precision compute in float32.
    """
    own = keras.models.clone_model(network, clone_function=_stock_in_float32 if in_float32 else _stock)
    own.set_weights(network.get_weights())
    images = keras.layers.Input(network.input_shape[1:], dtype="uint8", name="images")
    pixels = keras.layers.Rescaling(1 / 255, dtype="float32", name="pixels")(images)
    probabilities = keras.layers.Softmax(dtype="float32", name="probabilities")(own(pixels))
    return keras.Model(images, probabilities, name=f"{network.name}_served")


def _stock(layer: Any) -> Any:
    """Return the layer as its Keras base class, so that the exported files load without this project."""
    return _keras_class(layer).from_config(layer.get_config())


def _stock_in_float32(layer: Any) -> Any:
    return _keras_class(layer).from_config(_in_float32(layer.get_config()))


def _in_float32(config: dict[str, Any]) -> dict[str, Any]:
    """Return a layer's configuration, including nested layers, with float32 as the type."""
    changed = {name: _in_float32(value) if isinstance(value, dict) else value for name, value in config.items()}
    return changed | {"dtype": "float32"} if "dtype" in config else changed


def _keras_class(layer: Any) -> Any:
    return next(kind for kind in type(layer).__mro__ if kind.__module__.startswith("keras."))
