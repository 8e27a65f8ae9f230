"""The loss scale: what keeps small gradients from vanishing in float16 (Micikevicius et al. 2017, arXiv:1710.03740).

The loss is multiplied before the backward pass, the gradients are divided after they are summed. A dynamic
scale starts large, is halved when a gradient is not finite, in which case nothing is updated, and is doubled after many
good steps. All ranks see the same sums, so all choose alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

FIRST_SCALE: Final = 2.0**15
GOOD_STEPS: Final = 2000
"""Steps after which a larger scale is tried."""


class LossScale:
    """Scale a loss, and undo it in the gradients; `dynamic`: adapt the scale."""

    def __init__(self, scale: float = FIRST_SCALE, *, dynamic: bool) -> None:
        self._dynamic = dynamic
        with keras.name_scope("loss_scale", caller=self):
            self._scale = keras.Variable(scale, name="scale", dtype="float32", trainable=False)
            self._good_steps = keras.Variable(0, name="good_steps", dtype="int32", trainable=False)

    @property
    def variables(self) -> list[Any]:
        """List what must be saved."""
        return [self._scale, self._good_steps]

    def scaled(self, loss: Any) -> Any:
        """Multiply a loss (within the graph)."""
        return loss * tf.cast(self._scale.value, loss.dtype)

    def apply(self, gradients: Sequence[Any], update: Callable[[Sequence[Any]], None]) -> None:
        """Divide summed gradients and update with them; a dynamic scale does not where one is not finite.

        At a scale of 1 it updates in any case: then the scale is not at fault, and the loss will show it.
        """
        factor = 1 / self._scale.value
        gradients = [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]
        if not self._dynamic:
            update(gradients)
            return
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])

        def good() -> None:
            update(gradients)
            steps = self._good_steps.value.assign_add(1)
            grown = steps >= GOOD_STEPS
            self._scale.value.assign(tf.where(grown, self._scale.value * 2, self._scale.value))
            self._good_steps.value.assign(tf.where(grown, 0, steps))

        def bad() -> None:
            self._scale.value.assign(tf.maximum(self._scale.value / 2, 1.0))
            self._good_steps.value.assign(0)

        tf.cond(finite | (self._scale.value <= 1), good, bad)
