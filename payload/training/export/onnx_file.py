"""model.onnx of an export: the network in float32, checked against Keras's own answers."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

from payload.training.export.model_card import ModelCard, OnnxFile
from payload.training.export.onnx_check import largest_difference
from payload.training.export.onnx_conversion import OPSET, PACKAGES, onnx_model, save
from payload.training.export.serving import serving_model


def write_onnx(path: Path, network: Any, card: ModelCard) -> OnnxFile:
    """Write a network, float32 images 0 to 1 to logits, as ONNX from bytes to probabilities. Raises OnnxError, OSError.

    Layers that compute in half precision compute in float32 there, with the same weights, which are float32 anyhow:
    ONNX Runtime has no convolution in bfloat16 for processors.
    """
    serving = serving_model(network, in_float32=True)
    save(onnx_model(serving, card), path)
    return OnnxFile(
        opset=OPSET,
        bytes=path.stat().st_size,
        largest_difference=largest_difference(path, serving, card.size),
        versions={name: importlib.metadata.version(name) for name in (*PACKAGES, "keras")},
    )
