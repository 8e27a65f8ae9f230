"""Convert a trained network to ONNX with tf2onnx. Networks with unsupported operations are rejected.

During the conversion the weights are inputs, and become constants afterwards. tf2onnx copies constants many times. For
the 247 MB of AlexNet, this took 140 s and 13 GB instead of 2 s.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import logging
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import ReportedError
from payload.tensorflow_errors import first_line
from payload.training.export.model_card import ModelCard

OPSET: Final = 18
"""ONNX operator set: the newest that tf2onnx 1.17 supports. ONNX Runtime supports it since 1.14."""
PACKAGES: Final = ("tf2onnx", "onnx", "onnxruntime")
RUNTIME_REQUIREMENT: Final = "onnxruntime>=1.23,<2"
REQUIREMENTS: Final = ("tf2onnx==1.17.0", "onnx>=1.19,<2", RUNTIME_REQUIREMENT)
"""The same versions as in the group `node` of pyproject.toml."""
OTHER_FORMATS: Final = "to export only the other formats, omit --onnx or --export-onnx"
CARD_KEY: Final = "deepcdk.model"
"""Metadata key of the model card, stored as the JSON of model.json."""
LABELS_KEY: Final = "labels"
"""Metadata key of the class names, stored as a JSON list for other programs."""


class OnnxError(ReportedError, ValueError):
    """A network cannot be converted to ONNX. `operations`: unsupported operations; empty for other causes."""

    def __init__(self, message: str, operations: Sequence[str] = ()) -> None:
        self.operations = tuple(operations)
        super().__init__(message)


def require_converter() -> None:
    """Raise OnnxError with the command for installing missing packages, if there are any."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        command = shlex.join(["pip", "install", *REQUIREMENTS])
        raise OnnxError(f"ONNX: packages missing in this Python: {', '.join(missing)}; install them with: {command}")


def onnx_model(serving: Any, card: ModelCard) -> Any:
    """Convert a Keras model from images, uint8 [N, height, width, channels], to probabilities; return the ONNX model.

    Its outputs are `probabilities`, float32 [N, classes], and `classes`, int64 [N]: the most likely class. Raises
    OnnxError if a package is missing or the network cannot be converted.
    """
    require_converter()
    weights = [*serving.trainable_variables, *serving.non_trainable_variables]
    model = _converted(serving, weights)
    operations = sorted({_name(node) for node in _nodes(model.graph) if not _is_known(node)})
    if operations:
        raise OnnxError(
            f"{card.network} uses operations of TensorFlow that ONNX does not have: {', '.join(operations)}; "
            f"{OTHER_FORMATS}",
            operations,
        )
    _fold(model, _with_weights(model, weights))
    _describe(model, card)
    return model


def _converted(serving: Any, weights: Sequence[Any]) -> Any:
    """Convert a Keras model with tf2onnx. The weights become inputs weight_0, weight_1 and so on. Raises OnnxError.

    Operations that ONNX does not have stay in the result.
    """
    import tensorflow as tf
    import tf2onnx

    trainable = len(serving.trainable_variables)

    def serve(images: Any, *values: Any) -> dict[str, Any]:
        given = (values[:trainable], values[trainable:])
        probabilities, _ = serving.stateless_call(*given, images, training=False)
        return {"probabilities": probabilities, "classes": tf.argmax(probabilities, axis=1)}

    signature = [tf.TensorSpec((None, *serving.input_shape[1:]), tf.uint8, name="images")]
    signature += [tf.TensorSpec(each.shape, each.dtype, name=f"weight_{n}") for n, each in enumerate(weights)]
    log = logging.getLogger("tf2onnx")
    level = log.level
    log.setLevel(logging.CRITICAL)  # it logs unknown operations and continues
    try:
        model, _ = tf2onnx.convert.from_function(
            tf.function(serve, input_signature=signature), input_signature=signature, opset=OPSET
        )
    except Exception as error:  # each handler of tf2onnx raises different errors
        why = f"tf2onnx cannot convert {serving.name}: {first_line(error)}"
        raise OnnxError(f"ONNX: {why}; {OTHER_FORMATS}") from error
    finally:
        log.setLevel(level)
    return model


def _nodes(graph: Any) -> Iterator[Any]:
    """Yield all nodes of a graph, including those in the bodies of loops and conditions."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _is_known(node: Any) -> bool:
    import onnx

    return node.domain in ("", "ai.onnx") and bool(onnx.defs.has(node.op_type, OPSET, ""))


def _name(node: Any) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def _with_weights(model: Any, weights: Sequence[Any]) -> dict[str, Any]:
    """Remove the weights from the model's inputs, and return the model's constants and the weights by name."""
    import numpy as np
    from onnx import numpy_helper

    names = {f"weight_{n}": each for n, each in enumerate(weights)}
    for given in [each for each in model.graph.input if each.name in names]:
        model.graph.input.remove(given)
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    return constants | {name: np.asarray(each) for name, each in names.items()}


def _fold(model: Any, constants: dict[str, Any]) -> None:
    """Replace the nodes with constant inputs (such as transposed filters) by their results, in place.

    `constants`: values by name. Those that the remaining nodes use are stored in the model.
    """
    from onnx import numpy_helper

    kept = []
    for node in model.graph.node:
        if node.input and all(name in constants for name in node.input if name) and not _has_body(node):
            constants.update(_computed(node, constants))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    used = {name for node in _nodes(model.graph) for name in node.input}
    used |= {output.name for output in model.graph.output}
    del model.graph.initializer[:], model.graph.value_info[:]
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in constants.items() if name in used
    )


def _has_body(node: Any) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def _computed(node: Any, constants: dict[str, Any]) -> dict[str, Any]:
    """Evaluate one node with ONNX's reference implementation, and return its outputs by name."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    given = {name: constants[name] for name in dict.fromkeys(node.input) if name}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output]
    graph = helper.make_graph([node], "constant", inputs, outputs)
    alone = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    return dict(zip(node.output, ReferenceEvaluator(alone).run(None, given), strict=True))


def _describe(model: Any, card: ModelCard) -> None:
    """Set the model's name and description, name the axes, and store model card and class names in the metadata."""
    import onnx

    (images,) = model.graph.input
    _name_axes(images, ("N", "height", "width", "channels"))
    for output in model.graph.output:
        _name_axes(output, ("N", "classes"))
    model.graph.name, model.producer_name, model.producer_version = card.network, "deepcdk", ""
    model.doc_string = (
        f"{card.network} of {card.dataset}: images, uint8 [N, height, width, channels], 0 to 255 as in a file, "
        "to probabilities, float32 [N, classes]"
    )
    metadata = {LABELS_KEY: json.dumps(card.labels), CARD_KEY: json.dumps(dataclasses.asdict(card))}
    onnx.helper.set_model_props(model, metadata)


def _name_axes(value: Any, names: Sequence[str]) -> None:
    for axis, name in zip(value.type.tensor_type.shape.dim, names, strict=False):
        if not axis.HasField("dim_value"):
            axis.dim_param = name


def save(model: Any, path: Path) -> None:
    """Write a model to a file, then validate the file with ONNX. Raises OSError, or OnnxError for an invalid file."""
    import onnx

    onnx.save(model, str(path))
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except onnx.checker.ValidationError as error:
        raise OnnxError(
            f"ONNX: tf2onnx wrote an invalid model: {first_line(error)}; use the versions that deepcdk is "
            f"tested with: {', '.join(REQUIREMENTS)}"
        ) from error
