"""model.onnx of an export: written, and checked by ONNX Runtime against Keras's own answers, on the processor."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from payload.training.export.model_card import ModelCard, OnnxFile
from payload.training.export.onnx_conversion import OPSET, PACKAGES, OnnxError, onnx_model, save

ABSOLUTE: Final = 1e-5
RELATIVE: Final = 1e-3
"""By how much a probability may differ. Both sides compute in float32 and add up in another order: up to 2e-5 of a
probability was seen on all networks here, where a wrong padding or a forgotten normalisation changes it by a tenth."""


def session(path: Path) -> Any:
    """Return an ONNX Runtime session of a file, with a thread for each core that this process may use."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    options.log_severity_level = 3  # errors: its warnings are about what it optimises
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def trial_images(size: tuple[int, int], channels: int) -> npt.NDArray[np.uint8]:
    """Return images, uint8 [4, *size, channels]: noise, noise that ends halfway, a slope and one grey.

    Rows of zeros after half of them are the end of a sequence to a recurrent network.
    """
    height, width = size
    images = np.random.default_rng(0).integers(0, 256, (4, height, width, channels), np.uint8)
    images[1, height // 2 :] = 0
    images[2] = np.linspace(0, 255, width, dtype=np.uint8)[None, :, None]
    images[3] = 128
    return images


def largest_difference(path: Path, model: Any, size: tuple[int, int]) -> float:
    """Return by how much a probability of the file differs at most from the model's. Raises OnnxError.

    `model`: from uint8 images to probabilities; one of any size is tried at two. It is computed on the processor: a
    GPU may multiply with fewer bits.
    """
    import tensorflow as tf

    running = session(path)
    sizes = [size] if model.input_shape[1] else [size, (size[0] + 32, size[1] + 16)]
    worst = 0.0
    for each in sizes:
        images = trial_images(each, model.input_shape[3])
        with tf.device("/CPU:0"):
            expected = np.asarray(model(images, training=False))
        found = running.run(["probabilities"], {"images": images})[0]
        difference = np.abs(found - expected)
        if not bool((difference <= ABSOLUTE + RELATIVE * expected).all()):
            at = np.unravel_index(np.nanargmax(difference - RELATIVE * expected), difference.shape)
            raise OnnxError(
                f"ONNX: {path.name} gives {found[at]:.6g} where Keras gives {expected[at]:.6g}, for class {at[1]} of "
                f"images of {each[0]} x {each[1]}; it is not kept"
            )
        worst = max(worst, float(difference.max()))
    return worst


def write_onnx(path: Path, network: Any, card: ModelCard) -> OnnxFile:
    """Write a network, float32 images 0 to 1 to logits, as ONNX from bytes to probabilities. Raises OnnxError, OSError.

    Layers that compute in half precision compute in float32 there, with the same weights, which are float32 anyhow:
    ONNX Runtime has no convolution in bfloat16 for processors.
    """
    from payload.training.export.serving import serving_model  # needs Keras, which only an export has

    serving = serving_model(network, in_float32=True)
    save(onnx_model(serving, card), path)
    return OnnxFile(
        opset=OPSET,
        bytes=path.stat().st_size,
        largest_difference=largest_difference(path, serving, card.size),
        versions={name: importlib.metadata.version(name) for name in (*PACKAGES, "keras")},
    )
