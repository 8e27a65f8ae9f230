"""Write model.onnx of an export, and compare ONNX Runtime's predictions with Keras's on the CPU."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from payload.training.export.model_card import ModelCard, OnnxFile
from payload.training.export.onnx_conversion import OPSET, OTHER_FORMATS, PACKAGES, OnnxError, onnx_model, save

ABSOLUTE: Final = 1e-5
RELATIVE: Final = 1e-3
"""Tolerances for a probability. Both sides compute in float32, but in a different order. Differences up to 2e-5 were
seen on all networks here. Wrong padding or a missing normalization changes a probability by a tenth."""


def session(path: Path) -> Any:
    """Open an ONNX Runtime session for a file on the CPU, with a thread for each core available to this process."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    options.log_severity_level = 3  # errors only; its warnings are about optimizations
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def trial_images(size: tuple[int, int], channels: int) -> npt.NDArray[np.uint8]:
    """Return test images, uint8 [4, *size, channels]: noise, noise in the upper half, a gradient and plain gray.

    For a recurrent network, the rows of zeros in the second image mark the end of the sequence.
    """
    height, width = size
    images = np.random.default_rng(0).integers(0, 256, (4, height, width, channels), np.uint8)
    images[1, height // 2 :] = 0
    images[2] = np.linspace(0, 255, width, dtype=np.uint8)[None, :, None]
    images[3] = 128
    return images


def largest_difference(path: Path, model: Any, size: tuple[int, int]) -> float:
    """Return the largest absolute difference between the file's and the model's probabilities on `trial_images`.

    Raises OnnxError if a difference exceeds the tolerance. `model`: from uint8 images to probabilities. If it accepts
    any size, two sizes are tried. It runs on the CPU, because a GPU may multiply with lower precision.
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
                f"images of {each[0]} x {each[1]}; {OTHER_FORMATS}"
            )
        worst = max(worst, float(difference.max()))
    return worst


def write_onnx(path: Path, network: Any, card: ModelCard) -> OnnxFile:
    """Write a network as ONNX; return the file's description.

    `network` takes float32 pixels, 0 to 1, and returns logits. The ONNX file takes uint8 pixels and returns
    probabilities. The file's probabilities are compared with Keras's on test images. Layers with half precision compute
    in float32 in the ONNX file, because ONNX Runtime has no bfloat16 convolution for CPUs. Their weights are float32 in
    any case. Raises OnnxError, also if the probabilities differ too much, and OSError.
    """
    from payload.training.export.serving_model import serving_model  # imports Keras, which only the export needs

    serving = serving_model(network, in_float32=True)
    save(onnx_model(serving, card), path)
    return OnnxFile(
        opset=OPSET,
        bytes=path.stat().st_size,
        largest_difference=largest_difference(path, serving, card.size),
        versions={name: importlib.metadata.version(name) for name in (*PACKAGES, "keras")},
    )
