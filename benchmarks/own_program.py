"""A program as a user writes it after Horovod's tensorflow2_mnist.py: `horovodrun -np 2 python own_program.py 10 60 .`.

It uses no code of deepcdk except to time its steps. Arguments: the number of chunks, the steps in each, and the
directory for their times. It trains on random images, different ones on each rank.
"""

from __future__ import annotations

import sys
from typing import Any

import horovod
import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from benchmarks import step_times

BATCH = 64


def main(chunks: int, steps: int, output: str) -> None:
    """Train for `chunks` chunks of `steps` steps, and write their times to the directory `output`."""
    hvd.init()
    draw = np.random.default_rng(hvd.rank())
    images = draw.random((16 * BATCH, 28, 28, 1), np.float32)
    labels = draw.integers(0, 10, 16 * BATCH)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().shuffle(16 * BATCH).batch(BATCH)
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
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.001 * hvd.size(), momentum=0.9)
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([v.value for v in [*model.variables, *optimizer.variables]], root_rank=0)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(value, [v.value for v in model.trainable_variables])
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    batches = iter(data)
    step_times.write(
        output,
        lambda: step_times.median_s(lambda: float(step(*next(batches))), steps),
        chunks,
        total=lambda: sum(float(np.sum(variable.numpy(), dtype=float)) for variable in model.trainable_variables),
        ranks=hvd.size(),
        versions={"TensorFlow": tf.__version__, "Horovod": horovod.__version__},
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
