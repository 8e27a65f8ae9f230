"""The compiled step of training: forward and backward pass, one sum over all ranks, update. Traced once a shape."""

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
"""Loss, hits and top-5 hits: the numbers before the moments."""


def make_train_step(model: Any, optimizer: Optimizer, settings: Settings) -> TrainStep:
    """Compile one training step, which is collective. Raises SettingError.

    The step takes images uint8 or float32 [slots, height, width, channels], 0 to 255; labels int32 [slots]; weights
    float32 [slots], 1 or 0 for an unused slot; the size of the global batch; the learning rate; stop, whether a stop
    was requested on this rank; skipped, the damaged records that it left out; own_s, how long this rank's own part of
    the step before took, s. It returns float32 [5], summed over all ranks: loss, hits, top-5 hits, ranks on which a
    stop was requested, skipped records. With several ranks float32 [6 + ranks]: then come the own_s of each rank, and,
    of this rank alone, the seconds of its forward and backward pass. Where a normalisation sums over all ranks within
    that pass, they hold the wait for the others.

    Each rank's loss is the sum over its images divided by the size of the global batch, and gradients are summed: they
    equal those of one rank with the whole batch, however unevenly it is split.
    """
    ranks = distributed.size()
    rank = distributed.rank() if ranks > 1 else 0
    synchronised = settings.batch_norm == "synchronised" and ranks > 1
    if synchronised and settings.xla:
        rule = "a normalisation over all ranks cannot be compiled; use --batch-norm local, or leave --xla out"
        raise SettingError("--xla", None, rule)
    normalised = any(isinstance(layer, BatchNormalization) for layer in model._flatten_layers())
    variables = [variable.value for variable in model.trainable_variables]
    total = distributed.total_in_graph if synchronised else None
    layers: list[BatchNormalization] = []

    def part(images: Any, labels: Any, weights: Any, batch_size: Any, partial: bool) -> list[Any]:
        """Return sums over some images, which add up with those of others: losses, hits and moments, and gradients."""
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

    graph = tf.function(step, autograph=False)  # nothing in it depends on a tensor

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
        # Two traces only where unused slots would otherwise change the moments of a fused normalisation.
        partial = synchronised or (normalised and not np.all(np.asarray(weights)))
        numbers = tf.constant([batch_size, learning_rate, stop, skipped, own_s], tf.float32)
        return graph(images, labels, weights, numbers, bool(partial))

    return run


def _vector(values: Sequence[Any], kind: Any) -> Any:
    """Join scalars and vectors."""
    return tf.concat([tf.reshape(tf.cast(value, kind), [-1]) for value in values], 0)


def _time_of(values: list[Any], reached: Any) -> Any:
    """Return the unix time at which all of these were computed; `values`: a vector, then anything.

    On a GPU an operation counts as done for the graph as soon as it is queued there: so an element is read back behind
    all of them, which the queue delivers in its turn, and put into a variable of the CPU, since what nobody uses is
    optimised away. Run by two ranks on an H200; the times were not compared with the GPU's own.
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
    """Sum over the parts of a batch, one after the other, so that memory holds the activations of one at a time."""
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
    """Sum gradients and, last, losses and hits over all ranks (collective); gradients as float16 on request."""
    if compression == "none" or distributed.size() == 1:
        return distributed.sum_in_graph(tensors)
    *gradients, measures = tensors
    *summed, sums = distributed.sum_in_graph([*(tf.cast(gradient, tf.float16) for gradient in gradients), measures])
    return [*(tf.cast(value, given.dtype) for value, given in zip(summed, gradients, strict=True)), sums]
