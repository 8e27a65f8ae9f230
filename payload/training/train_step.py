"""Compile the training step: forward and backward pass, one sum over all ranks, weight update.

The step is traced once for each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from payload.models.normalization import BatchNormalization, counting, update_moving_moments
from payload.settings import SettingError, Settings
from payload.training import distributed
from payload.training.losses import hits, losses_of, pixels
from payload.training.optimizers.optimizer import Optimizer

TrainStep = Callable[..., Any]
MEASURES: Final = 3
"""Number of measures at the start of a step's vector: loss, hits and top-5 hits."""


def make_train_step(model: Any, optimizer: Optimizer, settings: Settings) -> TrainStep:
    """Return a function that runs one training step and updates the weights (collective).

    Raises SettingError if `--xla` is combined with batch normalization over all ranks.

    The step takes images, uint8 or float32 [slots, height, width, channels], 0 to 255; labels, int32 [slots]; weights,
    float32 [slots], 1 or 0 for an unused slot; the size of the global batch; the learning rate; stop, whether a stop
    was requested on this rank; skipped, the number of damaged records that this rank skipped; and own_s, the seconds
    of this rank's own part of the previous step.

    It returns float32 [5], summed over all ranks: loss, hits, top-5 hits, ranks on which a stop was requested, and
    skipped records. With several ranks it returns float32 [6 + ranks]: the own_s of each rank follow, then the seconds
    of this rank's own forward and backward pass. If batch normalization sums over all ranks, these seconds include the
    wait for other ranks.

    Each rank's loss is the sum over its images divided by the size of the global batch, and gradients are summed. The
    result equals that of one rank with the whole batch, however unevenly the batch is divided.
    """
    ranks = distributed.size()
    rank = distributed.rank() if ranks > 1 else 0
    synchronized = settings.batch_norm == "synchronized" and ranks > 1
    if synchronized and settings.xla:
        rule = "a normalization over all ranks cannot be compiled; use --batch-norm local, or remove --xla"
        raise SettingError("--xla", None, rule)
    normalized = any(isinstance(layer, BatchNormalization) for layer in model._flatten_layers())
    variables = [variable.value for variable in model.trainable_variables]
    total = distributed.total_in_graph if synchronized else None
    layers: list[BatchNormalization] = []

    def part(images: Any, labels: Any, weights: Any, batch_size: Any, partial: bool) -> list[Any]:
        """Return the sums over these images: one vector of losses, hits and moments, then the gradients."""
        with tf.GradientTape() as tape, counting(weights if partial else None, total) as moments:
            logits = model(pixels(images), training=True)
            losses = losses_of(logits, labels, settings.label_smoothing) * tf.cast(weights, logits.dtype)
            goal = optimizer.scaled(tf.reduce_sum(losses) / tf.cast(batch_size, losses.dtype))
        layers[:] = moments.layers
        measures = [tf.reduce_sum(losses), *(tf.reduce_sum(hit * weights) for hit in hits(logits, labels))]
        return [_vector([*measures, moments.packed()], logits.dtype), *tape.gradient(goal, variables)]

    def passes(images: Any, labels: Any, weights: Any, batch_size: Any, partial: bool) -> list[Any]:
        if settings.accumulation_steps == 1:
            return part(images, labels, weights, batch_size, partial)
        return _in_parts(part, images, labels, weights, batch_size, partial, settings.accumulation_steps)

    with tf.device("CPU:0"):
        reached = tf.Variable(0.0, trainable=False, name="reached")
    compiled = tf.function(passes, autograph=False, jit_compile=True) if settings.xla else passes

    def step(images: Any, labels: Any, weights: Any, numbers: Any, partial: bool) -> Any:
        batch_size, learning_rate, stop, skipped, own_s = tf.unstack(numbers)
        if ranks == 1:
            rest = tf.stack([stop, skipped])
            own, *gradients = compiled(images, labels, weights, batch_size, partial)
            seconds = []
        else:
            rest = _vector([stop, skipped, own_s * tf.one_hot(rank, ranks)], numbers.dtype)
            began = tf.timestamp()
            with tf.control_dependencies([began]):
                images = tf.identity(images)
            own, *gradients = compiled(images, labels, weights, batch_size, partial)
            seconds = [tf.cast(_time_of([own, *gradients], reached) - began, own.dtype)]
        *gradients, own = _summed([*gradients, _vector([own, rest], own.dtype)], settings.compression)
        measures, moments, rest = tf.split(own, [MEASURES, -1, rest.shape[0]])
        update_moving_moments(layers, moments)
        optimizer.apply(gradients, learning_rate)
        return _vector([measures, rest, *seconds], own.dtype)

    graph = tf.function(step, autograph=False)  # its Python code does not depend on the value of a tensor

    def run(
        images: Any,
        labels: Any,
        weights: Any,
        batch_size: int,
        learning_rate: float,
        stop: bool,
        skipped: int,
        own_s: float = 0.0,
    ) -> Any:
        # A second trace is needed only if unused slots would change the moments of a fused normalization.
        partial = synchronized or (normalized and not np.all(np.asarray(weights)))
        numbers = tf.constant([batch_size, learning_rate, stop, skipped, own_s], tf.float32)
        return graph(images, labels, weights, numbers, bool(partial))

    return run


def _vector(values: Sequence[Any], kind: Any) -> Any:
    """Join scalars and vectors into one vector."""
    return tf.concat([tf.reshape(tf.cast(value, kind), [-1]) for value in values], 0)


def _time_of(values: list[Any], reached: Any) -> Any:
    """Return the Unix time at which all `values` were computed. The first one must be a vector.

    TensorFlow treats an operation on a GPU as done once it is queued. So one element is copied to the CPU: the copy is
    queued after all values, and arrives only when they are computed. The element is assigned to the variable `reached`,
    because TensorFlow removes operations with unused results. Tried with two ranks on an H200. The times were not
    compared with the GPU's own timestamps.
    """
    with tf.control_dependencies(tf.nest.flatten(values, expand_composites=True)):
        element = tf.identity(values[0][0])
    with tf.device("CPU:0"), tf.control_dependencies([reached.assign(tf.cast(element, tf.float32))]):
        return tf.timestamp()


def _in_parts(
    part: Callable[..., list[Any]],
    images: Any,
    labels: Any,
    weights: Any,
    batch_size: Any,
    partial: bool,
    parts: int,
) -> list[Any]:
    """Process the parts of a batch in sequence and sum the results, so that memory holds one part's activations."""
    slots = -(-images.shape[0] // parts)
    unused = slots * parts - images.shape[0]

    def split(values: Any) -> Any:
        padded = tf.pad(values, [[0, unused]] + [[0, 0]] * (len(values.shape) - 1))
        return tf.reshape(padded, [parts, slots, *values.shape[1:]])

    images, labels, weights = split(images), split(labels), split(weights)

    def of(number: Any) -> list[Any]:
        return part(images[number], labels[number], weights[number], batch_size, partial or unused > 0)

    def add(number: Any, *sums: Any) -> tuple[Any, ...]:
        return number + 1, *(total + value for total, value in zip(sums, of(number), strict=True))

    first = of(0)
    with tf.control_dependencies(first):  # otherwise the second part would run in parallel to the first
        number = tf.constant(1)
    _, *sums = tf.while_loop(lambda number, *_: number < parts, add, [number, *first], parallel_iterations=1)
    return list(sums)


def _summed(tensors: list[Any], compression: str) -> list[Any]:
    """Sum gradients and the last tensor, the measures, over all ranks (collective). Compress gradients on request."""
    if compression == "none" or distributed.size() == 1:
        return distributed.sum_in_graph(tensors)
    *gradients, measures = tensors
    *summed, sums = distributed.sum_in_graph([*(tf.cast(gradient, tf.float16) for gradient in gradients), measures])
    return [*(tf.cast(value, given.dtype) for value, given in zip(summed, gradients, strict=True)), sums]
