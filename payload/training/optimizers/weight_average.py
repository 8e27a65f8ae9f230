"""A moving average of the weights, used for evaluation: steadier than the weights of any one step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf


class WeightAverage:
    """The moving average of a model's weights, and of the moments of its batch normalisations.

    The moments belong to the weights that made them, so they are averaged too. In the first steps the decay is less,
    (1 + n) / (10 + n) after n steps, as in TensorFlow's ExponentialMovingAverage; otherwise the initial, random weights
    would dominate the average for long.
    """

    def __init__(self, variables: Sequence[Any], decay: float) -> None:
        """Start from the current variables; those that are not floating-point, as random states, are left out."""
        self._decay = decay
        self._averaged = [variable for variable in variables if variable.value.dtype.is_floating]
        with keras.name_scope("average", caller=self):
            self.variables = [
                keras.Variable(
                    variable.numpy(), name=variable.path.replace("/", "_"), dtype=variable.dtype, trainable=False
                )
                for variable in self._averaged
            ]

    def update(self, steps: Any) -> None:
        """Move the average towards the weights (within the graph). `steps`: how many were taken before this one."""
        count = tf.cast(steps, tf.float32)
        share = 1 - tf.minimum(self._decay, (1 + count) / (10 + count))
        for average, variable in zip(self.variables, self._averaged, strict=True):
            difference = variable.value - average.value
            average.value.assign_add(tf.cast(share, difference.dtype) * difference)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Use the average in place of the model's weights within a block, then restore them, bit for bit."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for average, variable in zip(self.variables, self._averaged, strict=True):
            kept = tf.identity(variable.value)
            variable.value.assign(average.value)
            average.value.assign(kept)
