"""Time one way to train: `python -m benchmarks.training_loop JSON`, started by `benchmarks.one_rank`.

One process measures one way, so none inherits another's memory, compiled graphs or settings. Prints one line of JSON.
All ways train the same network on the same synthetic batch with the same numbers of threads.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from payload.models.normalization import BatchNormalization
from payload.models.registry import network
from payload.settings import Settings
from payload.training import distributed
from payload.training.optimizers.optimizer import make_optimizer
from payload.training.train_step import make_train_step

RATE: Final = 1e-6
"""Small, so that random labels leave the numbers finite; a step takes as long as with any other."""
MOMENTUM: Final = 0.9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What is trained, and how long."""

    way: str
    """A key of WAYS."""
    network: str
    batch: int
    warmup: int
    """Steps before those that are timed: the first is traced, and memory pools fill in the next."""
    steps: int


def measure(work: Work) -> dict[str, Any]:
    """Train, and return times in seconds and memory in MiB."""
    tf.config.threading.set_intra_op_parallelism_threads(len(os.sched_getaffinity(0)))
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(1)
    known = network(work.network)
    model = known.build(known.image_shape, known.classes)
    drawn = np.random.default_rng(1)
    images = drawn.integers(0, 256, (work.batch, *known.image_shape)).astype(np.uint8)
    labels = drawn.integers(0, known.classes, work.batch).astype(np.int32)
    train = WAYS[work.way](model, images, labels)
    train(work.warmup)
    before_mib = _resident_mib()
    began, cpu_began = time.perf_counter(), time.process_time()
    seconds = train(work.steps)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    return {
        "step_seconds": float(np.median(seconds)),
        "mean_seconds": wall / work.steps,
        "cpu_seconds": cpu / work.steps,
        "growth_mib": _resident_mib() - before_mib,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


Train = Callable[[int], list[float]]
"""Take so many steps, and return how long each took."""


def _batches(images: Any, labels: Any, steps: int) -> Iterator[Any]:
    return iter(tf.data.Dataset.from_tensors((images, labels)).repeat(steps))


def _payload(model: Any, images: Any, labels: Any) -> Train:
    """Take the payload's step, and read its sums after each, as the trainer does."""
    distributed.join()
    settings = Settings(momentum=MOMENTUM)
    step = make_train_step(model, make_optimizer(settings, model), settings)
    weights = np.ones(len(labels), np.float32)

    def train(steps: int) -> list[float]:
        rest = (weights, len(labels), RATE, False, 0)
        return [_timed(step, *batch, *rest) for batch in _batches(images, labels, steps)]

    return train


def _plain(model: Any, images: Any, labels: Any) -> Train:
    """Do what TensorFlow's guide to training loops does, with the loss read after each step."""
    optimizer = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(tf.cast(images, tf.float32) / 255, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, model.trainable_weights)
        optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
        return loss

    def train(steps: int) -> list[float]:
        return [_timed(step, *batch) for batch in _batches(images, labels, steps)]

    return train


def _keras_norm(model: Any, images: Any, labels: Any) -> Train:
    """Run the plain loop with Keras's own batch normalisation in place of the payload's."""

    def layer_for(layer: Any) -> Any:
        if isinstance(layer, BatchNormalization):
            return keras.layers.BatchNormalization.from_config(layer.get_config())
        return layer.__class__.from_config(layer.get_config())

    return _plain(keras.models.clone_model(model, clone_function=layer_for), images, labels)


def _fit(model: Any, images: Any, labels: Any, *, jit_compile: bool | str) -> Train:
    """Train with Keras; pixels are floats beforehand, which spares it work that the others do in each step."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(RATE, momentum=MOMENTUM), loss, jit_compile=jit_compile)
    pixels = images.astype(np.float32) / 255

    def train(steps: int) -> list[float]:
        times = [time.perf_counter()]
        told = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs=None: times.append(time.perf_counter())
        )
        data = tf.data.Dataset.from_tensors((pixels, labels)).repeat()
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[told])
        return [float(step) for step in np.diff(times)]

    return train


WAYS: Final[dict[str, Callable[[Any, Any, Any], Train]]] = {
    "payload": _payload,
    "plain": _plain,
    "keras-norm": _keras_norm,
    "fit": lambda *given: _fit(*given, jit_compile="auto"),
    "fit-graph": lambda *given: _fit(*given, jit_compile=False),
}
"""The payload's step; a plain loop, also with Keras's normalisation; Keras's `fit` as it comes, which compiles by XLA,
and without that."""


def _timed(step: Callable[..., Any], *given: Any) -> float:
    """Return the seconds of one step; reading its result waits for it."""
    began = time.perf_counter()
    step(*given).numpy()
    return time.perf_counter() - began


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


if __name__ == "__main__":
    print(json.dumps(measure(Work(**json.loads(sys.argv[1])))), flush=True)
