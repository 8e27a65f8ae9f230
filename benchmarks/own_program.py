"""A program as a user writes it after Horovod's examples: `horovodrun -np 2 python own_program.py mnist 64 20 100`.

It knows nothing of this project: models, calls of Horovod and the choice of a GPU are those of Horovod's
`examples/tensorflow2`, on synthetic data, over the TensorFlow variables behind Keras's (Keras 3). Arguments: the model,
its batch, steps before those that are timed, and steps. It prints one line of JSON with each timed step's seconds.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf


def mnist(batch: int) -> tuple[Any, Any, Any]:
    """Return the model of tensorflow2_mnist.py, and images and labels like MNIST's."""
    model = keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Dropout(0.25),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(10),
        ]
    )
    return model, np.random.rand(16 * batch, 28, 28, 1).astype(np.float32), np.random.randint(0, 10, 16 * batch)


def resnet(batch: int) -> tuple[Any, Any, Any]:
    """Return the model of tensorflow2_synthetic_benchmark.py, and small images."""
    model = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=100, classifier_activation=None)
    return model, np.random.rand(2 * batch, 64, 64, 3).astype(np.float32), np.random.randint(0, 100, 2 * batch)


def text(batch: int) -> tuple[Any, Any, Any]:
    """Return a classifier of texts over an embedding, whose gradients are sparse, and texts of 200 words."""
    model = keras.Sequential(
        [
            keras.layers.Input((200,), dtype="int32"),
            keras.layers.Embedding(10_000, 64),
            keras.layers.Conv1D(128, 5, activation="relu"),
            keras.layers.GlobalMaxPooling1D(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(2),
        ]
    )
    return model, np.random.randint(0, 10_000, (16 * batch, 200)), np.random.randint(0, 2, 16 * batch)


def main(name: str, batch: int, warmup: int, steps: int) -> None:
    """Train, and print the seconds of each step."""
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    model, inputs, labels = {"mnist": mnist, "resnet": resnet, "text": text}[name](batch)
    data = tf.data.Dataset.from_tensor_slices((inputs, labels)).repeat().shuffle(16 * batch).batch(batch)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.01 * hvd.size(), momentum=0.9)
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([v.value for v in [*model.variables, *optimizer.variables]], root_rank=0)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step(images: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(targets, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(value, [v.value for v in model.trainable_variables])
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    seconds = []
    began = time.perf_counter()
    for number, (images, targets) in enumerate(data.take(warmup + steps)):
        value = float(step(images, targets))
        now = time.perf_counter()
        if number >= warmup:
            seconds.append(now - began)
        began = now
    print("FIGURES " + json.dumps({"seconds": seconds, "batch": batch, "loss": value}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
