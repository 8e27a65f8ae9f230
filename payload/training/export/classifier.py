"""Load an exported network and classify images with it. Needs only the export, not the files of its run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from payload.tensorflow_errors import first_line
from payload.training.export.model_card import (
    EXPORT_AGAIN,
    KERAS_FILE,
    ONNX_FILE,
    ModelCard,
    ModelError,
    card_from,
    locate,
    read_card,
)
from payload.training.export.onnx_conversion import CARD_KEY, RUNTIME_REQUIREMENT
from payload.training.export.onnx_file import session

KERAS_CLASSES: Final = frozenset(
    (
        *("Functional", "Sequential", "InputLayer", "__keras_tensor__", "DTypePolicy"),
        *("GlorotUniform", "HeNormal", "Ones", "Orthogonal", "RandomNormal", "Zeros"),
        *("Add", "Any", "Concatenate", "NotEqual", "Pad", "Reshape", "Flatten"),
        *("AveragePooling2D", "GlobalAveragePooling2D", "MaxPooling2D", "ZeroPadding2D"),
        *("BatchNormalization", "Conv2D", "Dense", "Dropout", "ReLU", "Rescaling", "Softmax"),
        *("Bidirectional", "LSTM", "Masking"),
    )
)
"""The classes that a .keras file may contain, as exported networks do. They neither read files nor run code from the
file, unlike Keras's TFSMLayer, Lambda and StringLookup."""
MAX_CONFIG_BYTES: Final = 16 << 20
_FOREIGN: Final = "is not an export of deepcdk, which takes uint8 images and returns probabilities; pass an export"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classifier:
    """A loaded network that classifies images."""

    path: Path
    labels: tuple[str, ...]
    size: tuple[int, int]
    """Height and width of the images, pixels."""
    any_size: bool
    """Whether the network accepts images of other sizes too."""
    channels: int
    network: Any
    """Keras model from pixels 0 to 1 to logits. None for a SavedModel or ONNX file, which do not expose it."""
    function: Callable[[Any], Any]
    card: ModelCard | None

    def probabilities(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return the probability of each class: uint8 [N, height, width, channels] to float32 [N, classes].

        Raises ModelError for images of another type or shape.
        """
        height, width = self.size
        shape = tuple(images.shape)
        if images.dtype != np.uint8 or len(shape) != 4 or shape[3] != self.channels:
            raise ModelError(
                f"images of {images.dtype} {list(shape)}: must be uint8 [N, height, width, {self.channels}]"
            )
        if not self.any_size and shape[1:3] != self.size:
            raise ModelError(f"images of {shape[1]} x {shape[2]}: {self.path} takes {height} x {width}; resize them")
        return np.asarray(self.function(images), np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """The probability of one class for an image."""

    label: str
    number: int
    probability: float


def likeliest(probabilities: npt.NDArray[np.float32], labels: Sequence[str], top: int) -> list[Prediction]:
    """Return the `top` most likely classes of one image, most likely first. Among equals, the lower number is first."""
    order = np.argsort(-probabilities, kind="stable")[:top]
    return [Prediction(label=labels[n], number=int(n), probability=float(probabilities[n])) for n in order]


def load(given: Path, size: tuple[int, int] | None = None, *, trust_model: bool = False) -> Classifier:
    """Load a .keras file, an .onnx file, a SavedModel, or the first of these in an export or a run's directory.

    `size`: height and width of the images, for a network that accepts any size; None: those in model.json.
    `trust_model`: also load a SavedModel, and a .keras file with other classes than this project's networks. Such files
    can read and write this user's files. ONNX needs no TensorFlow. Raises ModelError if there is no model, or it cannot
    be loaded.
    """
    path, folder = locate(given)
    if path.is_dir() and not trust_model:
        raise ModelError(
            f"{path}: not loaded, because a SavedModel can read and write your files; pass the {KERAS_FILE} or "
            f"{ONNX_FILE} of its export instead, or pass --trust-model if you trust the program that wrote it"
        )
    card = read_card(folder)
    with _naming(path):
        if path.suffix == ".onnx":
            shape, classes, function, own = _onnx(path)
            network, card = None, own or card
        else:
            shape, classes, network, function = _saved_model(path) if path.is_dir() else _keras(path, trust_model)
    height, width, channels = shape
    fixed = (height, width) if height and width else None
    chosen = fixed or size or (card.size if card else None)
    if chosen is None:
        raise ModelError(
            f"{path}: takes images of any size, and there is no model.json with a size next to it; set --size"
        )
    labels = card.labels if card else tuple(map(str, range(classes)))
    if len(labels) != classes:
        raise ModelError(
            f"{folder}: model.json names {len(labels)} classes, but the model has {classes}; {EXPORT_AGAIN}"
        )
    return Classifier(
        path=path,
        labels=labels,
        size=chosen,
        any_size=fixed is None,
        channels=channels,
        network=network,
        function=function,
        card=card,
    )


def _keras(path: Path, trust_model: bool) -> tuple[tuple[int | None, int | None, int], int, Any, Callable[[Any], Any]]:
    import keras

    if not trust_model:
        _check_classes(path)
    model = keras.saving.load_model(path, compile=False, safe_mode=True)
    networks = [layer for layer in model.layers if isinstance(layer, keras.Model)]
    if str(model.inputs[0].dtype) != "uint8" or len(model.output_shape) != 2 or len(networks) != 1:
        raise ModelError(f"{path}: {_FOREIGN}")

    def function(images: Any) -> Any:
        return model(images, training=False)

    return model.input_shape[1:], model.output_shape[1], networks[0], function


def _check_classes(path: Path) -> None:
    """Raise ModelError if a .keras file contains classes that this project's networks do not have, or is too large."""
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo("config.json").file_size > MAX_CONFIG_BYTES:
            raise ModelError(
                f"{path}: its config.json is larger than {MAX_CONFIG_BYTES} bytes; pass an export of deepcdk"
            )
        config = json.loads(archive.read("config.json"))
    if foreign := sorted(set(_classes(config)) - KERAS_CLASSES):
        raise ModelError(
            f"{path}: not loaded, because it contains classes that are in no network of deepcdk, and that might read "
            f"your files or run code: {', '.join(foreign)[:200]}; if you trust the program that wrote it, "
            "pass --trust-model"
        )


def _classes(value: Any) -> Iterator[str]:
    """Yield the names of all classes in a Keras configuration. Names from outside Keras include the module."""
    if isinstance(value, dict):
        if "class_name" in value:
            module = str(value.get("module") or "keras")
            yield ("" if module.partition(".")[0] == "keras" else f"{module}.") + str(value["class_name"])
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _classes(each)


def _saved_model(path: Path) -> tuple[tuple[int | None, int | None, int], int, Any, Callable[[Any], Any]]:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures.get("serving_default")
    (taken,) = signature.structured_input_signature[1].values() if signature else (None,)
    given = signature.structured_outputs.get("probabilities") if signature else None
    if taken is None or given is None or taken.dtype != tf.uint8 or len(taken.shape) != 4:
        raise ModelError(
            f"{path}: its signature serving_default must take uint8 images and return probabilities; "
            "pass an export of deepcdk"
        )

    def function(images: Any) -> Any:
        kept = loaded  # signatures do not keep variables alive
        return kept.signatures["serving_default"](**{taken.name: tf.constant(images)})["probabilities"]

    return tuple(taken.shape[1:]), given.shape[1], None, function


def _onnx(path: Path) -> tuple[tuple[int | None, int | None, int], int, Callable[[Any], Any], ModelCard | None]:
    running = session(path)
    (taken,) = running.get_inputs()
    given = {each.name: each for each in running.get_outputs()}.get("probabilities")
    if given is None or (taken.name, taken.type, len(taken.shape)) != ("images", "tensor(uint8)", 4):
        raise ModelError(f"{path}: {_FOREIGN}")
    height, width, channels = (each if isinstance(each, int) else None for each in taken.shape[1:])
    text = running.get_modelmeta().custom_metadata_map.get(CARD_KEY)

    def function(images: Any) -> Any:
        return running.run(["probabilities"], {"images": images})[0]

    return (height, width, channels or 0), given.shape[1], function, card_from(text, path) if text else None


@contextlib.contextmanager
def _naming(path: Path) -> Any:
    """Raise a ModelError that names the file for any error of a loader within the block.

    If a package is missing, the message includes the way to install it or to do without it.
    """
    try:
        yield
    except ModelError:
        raise
    except ModuleNotFoundError as error:
        beside = path.parent / ONNX_FILE
        if path.suffix == ".onnx":
            remedy = f"install it with: pip install '{RUNTIME_REQUIREMENT}'"
        elif beside.is_file():
            remedy = f"give --model {beside}, which needs only ONNX Runtime"
        else:
            remedy = "use a Python with TensorFlow, for example of the nodes or of a development environment"
        raise ModelError(f"{path}: needs {error.name}, which is not installed in this Python; {remedy}") from error
    except Exception as error:  # Keras, h5py, zipfile and TensorFlow each raise different errors
        raise ModelError(f"{path}: cannot be loaded: {first_line(error)}; {EXPORT_AGAIN}") from error
