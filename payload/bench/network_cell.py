"""Measure one cell of the benchmark: `python -m payload.bench.network_cell JSON`, started by `payload.bench`.

Each cell has its own process, so that no memory, compiled graph or setting is shared. Prints one line of JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from payload.models.registry import network, parameter_count
from payload.settings import Settings
from payload.training.rank_setup import set_up_rank, set_up_tensorflow

LEARNING_RATE: Final = 1e-6
"""Small, so that weights stay finite with random labels. It does not affect the time of a step."""
TUNED: Final = "tuned"
STOCK: Final = "stock"
ONEDNN_OFF: Final = "onednn-off"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One measurement: a network at one batch size, in a separate process."""

    network: str
    batch_size: int
    """Images in a step."""
    image_size: int
    """Image side in pixels."""
    mode: str
    """"training" (forward and backward pass, and update) or "inference" (forward pass)."""
    variant: str
    """TUNED: tuned like a rank of a run (`payload.training.rank_tuning`). STOCK: TensorFlow's defaults. ONEDNN_OFF:
    like TUNED without oneDNN, to represent TensorFlow before its Intel optimizations."""
    steps: int
    """Number of timed steps. The median is reported."""
    warmup_steps: int
    """Number of steps before timing. The first compiles the graph, and allocations settle in the second."""
    intra_op_threads: int
    """Threads within one operation; 0: one for each physical core available to the process."""
    inter_op_threads: int
    """Operations to run in parallel; 0: chosen by the network's branches."""


def measure(cell: Cell) -> dict[str, Any]:
    """Tune this process unless the variant is STOCK, build the network, and time the cell's steps on random images.

    Return JSON values: the seconds of each timed step and of the first warm-up step, the mean number of busy cores, the
    peak memory (MiB), the number of weights, the tuning as text, and the versions. Call this once in a process.
    """
    chosen = _tune(cell) if cell.variant != STOCK else "TensorFlow's defaults"
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    known = network(cell.network)
    shape = (cell.image_size, cell.image_size, known.channels)
    model = known.build(shape, known.classes)
    images = tf.random.uniform((cell.batch_size, *shape), seed=1)
    labels = tf.random.uniform((cell.batch_size,), maxval=known.classes, dtype=tf.int32, seed=1)
    step = _training_step(model, images, labels) if cell.mode == "training" else _inference_step(model, images)
    warmup = [_timed(step) for _ in range(cell.warmup_steps)]
    began, cpu_began = time.perf_counter(), time.process_time()
    step_seconds = [_timed(step) for _ in range(cell.steps)]
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return {
        "step_seconds": step_seconds,
        "first_step_seconds": warmup[0],
        "cores_used": cpu_seconds / seconds,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "parameters": parameter_count(model),
        "chosen": chosen,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }


def _tune(cell: Cell) -> str:
    """Bind and tune this process like a rank of a run, before TensorFlow is imported; return the choices as text."""
    settings = Settings(
        network=cell.network,
        image_size=cell.image_size,
        batch_per_rank=cell.batch_size,
        intra_op_threads=cell.intra_op_threads,
        inter_op_threads=cell.inter_op_threads,
    )
    rank_setup = set_up_rank(settings, os.environ)
    set_up_tensorflow(rank_setup, 0)
    return str(rank_setup)


def _timed(step: Callable[[], Any]) -> float:
    """Return the seconds of one step. Reading its result waits until it is done."""
    began = time.perf_counter()
    step().numpy()
    return time.perf_counter() - began


def _training_step(model: Any, images: Any, labels: Any) -> Callable[[], Any]:
    """Return a function that runs one compiled training step and returns the loss.

    The optimizer is RMSprop, as in the article that the benchmark reproduces (`payload/bench/__main__.py`).
    """
    import keras
    import tensorflow as tf

    optimizer = keras.optimizers.RMSprop(LEARNING_RATE)
    optimizer.build(model.trainable_variables)
    variables = [variable.value for variable in model.trainable_variables]

    def step() -> Any:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return tf.function(step, autograph=False)  # type: ignore[no-any-return]  # TensorFlow has no types


def _inference_step(model: Any, images: Any) -> Callable[[], Any]:
    """Return a function that runs one compiled forward pass and returns the sum of the logits.

    The images are an argument of the graph. If they were constants, TensorFlow would compute the result only once.
    """
    import tensorflow as tf

    forward = tf.function(lambda batch: tf.reduce_sum(model(batch, training=False)), autograph=False)
    return lambda: forward(images)


if __name__ == "__main__":
    print(json.dumps(measure(Cell(**json.loads(sys.argv[1])))), flush=True)
