"""Update rules of weights, where Keras has none or one that differs from the publication.

All are Keras optimizers, so their variables are built, named and saved as those of Keras's own. A vector (a bias, or
scale and offset of a normalisation) neither decays nor gets a local rate unless `decay_all`: so the published runs have
it, and a bias that starts at zero would stay near it, because its rate would follow its norm.

Where a norm is zero, a layer's local rate is the global one.
"""

from __future__ import annotations

from typing import Any, Final

import keras
import tensorflow as tf

ADAM_EPSILON: Final = 1e-8
"""Kingma and Ba 2014, algorithm 1."""
LAMB_EPSILON: Final = 1e-6
"""You et al. 2019, appendix."""


class _Decaying(keras.optimizers.Optimizer):  # type: ignore[misc]  # Keras has no types
    """An optimizer with L2 decay in the gradient: the derivative of `l2` / 2 times the square of the weights."""

    def __init__(self, *, l2: float, decay_all: bool, **options: Any) -> None:
        super().__init__(**options)
        self._l2, self._decay_all = l2, decay_all

    def _is_decayed(self, variable: Any) -> bool:
        """Return whether a weight decays, and gets a local rate where the rule has one."""
        return self._decay_all or decays(variable)

    def _decayed(self, gradient: Any, variable: Any) -> Any:
        return gradient + self._l2 * variable if self._l2 and self._is_decayed(variable) else gradient

    def _slot(self, slots: list[Any], variable: Any) -> Any:
        """Return the TensorFlow variable that the rule keeps for a weight."""
        return slots[self._get_variable_index(variable)].value


class Momentum(_Decaying):
    """SGD with momentum: v = m v + g, w = w - rate v; g with L2 decay.

    The rate stands outside the velocity, as in PyTorch's SGD and TensorFlow's MomentumOptimizer, with which the
    published runs were made. Keras's SGD has it inside, so that a change of rate takes effect over 1 / (1 - m) steps.
    """

    def __init__(self, *, momentum: float, **options: Any) -> None:
        super().__init__(**options)
        self._momentum = momentum

    def build(self, variables: Any) -> None:
        """Make the velocities."""
        super().build(variables)
        self._velocities = self.add_optimizer_variables(variables, "momentum") if self._momentum else []

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one weight."""
        self._move(self._decayed(gradient, variable), variable, tf.cast(learning_rate, variable.dtype))

    def _move(self, gradient: Any, variable: Any, rate: Any) -> None:
        if not self._momentum:
            variable.assign_sub(rate * gradient)
            return
        tf.raw_ops.ResourceApplyMomentum(  # one pass over memory for both updates
            var=variable.handle,
            accum=self._slot(self._velocities, variable).handle,
            lr=rate,
            grad=gradient,
            momentum=tf.cast(self._momentum, variable.dtype),
        )


class Lars(Momentum):
    """LARS, a local rate for each layer by its norms: You, Gitman and Ginsburg 2017, arXiv:1708.03888, algorithm 1.

    Local rate l = eta |w| / (|g| + decay |w|); v = m v + rate l (g + decay w); w = w - v.
    """

    def __init__(self, *, trust_coefficient: float, **options: Any) -> None:
        super().__init__(**options)
        self._eta = trust_coefficient

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one weight."""
        rate = tf.cast(learning_rate, variable.dtype)
        if self._is_decayed(variable):
            rate *= self._local_rate(gradient, variable)
        step = rate * self._decayed(gradient, variable)
        if not self._momentum:
            variable.assign_sub(step)
            return
        velocity = self._slot(self._velocities, variable)
        velocity.assign(self._momentum * velocity + step)
        variable.assign_sub(velocity)

    def _local_rate(self, gradient: Any, variable: Any) -> Any:
        weight_norm, gradient_norm = tf.norm(variable), tf.norm(gradient)
        return _ratio(self._eta * weight_norm, gradient_norm + self._l2 * weight_norm, weight_norm * gradient_norm)


class Larc(Lars):
    """LARC, where the local rate is a bound: a layer's rate is the lesser of it and the global one.

    After NVIDIA's LARC (the "clip" mode of OpenSeq2Seq and Apex), by which the runs on 128 GPUs and more were made: the
    gradient, decay included, is scaled by min(l / rate, 1), and momentum follows with the rate outside the velocity.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one weight."""
        rate = tf.cast(learning_rate, variable.dtype)
        step = self._decayed(gradient, variable)
        if self._is_decayed(variable):
            step *= tf.minimum(self._local_rate(gradient, variable) / rate, 1)
        self._move(step, variable, rate)


class Lamb(_Decaying):
    """LAMB, Adam with a local rate for each layer by its norms: You et al. 2019, arXiv:1904.00962, algorithm 2.

    r = m / (sqrt(v) + epsilon) with both moments corrected for their start; u = r + decay w; w = w - rate |w| / |u| u.
    Keras's Lamb takes the decay out of u, and so out of the norm.
    """

    def __init__(self, *, beta_1: float, beta_2: float, **options: Any) -> None:
        super().__init__(**options)
        self._beta_1, self._beta_2 = beta_1, beta_2

    def build(self, variables: Any) -> None:
        """Make both moments."""
        super().build(variables)
        self._first, self._second = self.add_optimizer_variables(variables, ["momentum", "velocity"])

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one weight."""
        first, second = self._slot(self._first, variable), self._slot(self._second, variable)
        first.assign_add((1 - self._beta_1) * (gradient - first))
        second.assign_add((1 - self._beta_2) * (tf.square(gradient) - second))
        steps = tf.cast(self.iterations.value + 1, variable.dtype)
        mean = first / (1 - tf.pow(tf.cast(self._beta_1, variable.dtype), steps))
        square = second / (1 - tf.pow(tf.cast(self._beta_2, variable.dtype), steps))
        update = self._decayed(mean / (tf.sqrt(square) + LAMB_EPSILON), variable)
        rate = tf.cast(learning_rate, variable.dtype)
        if self._is_decayed(variable):
            weight_norm, update_norm = tf.norm(variable), tf.norm(update)
            rate *= _ratio(weight_norm, update_norm, weight_norm * update_norm)
        variable.assign_sub(rate * update)


class Adam(_Decaying, keras.optimizers.Adam):  # type: ignore[misc]  # Keras has no types
    """Keras's Adam with L2 decay in the gradient."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one weight."""
        super().update_step(self._decayed(gradient, variable), variable, learning_rate)


class RmsProp(_Decaying, keras.optimizers.RMSprop):  # type: ignore[misc]  # Keras has no types
    """Keras's RMSprop with L2 decay in the gradient."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one weight."""
        super().update_step(self._decayed(gradient, variable), variable, learning_rate)


def decays(variable: Any) -> bool:
    """Return whether a weight decays by default: a matrix or a filter does, a bias or the scale of a norm does not."""
    return len(variable.shape) > 1


def _ratio(numerator: Any, denominator: Any, known: Any) -> Any:
    """Divide; 1 where `known` is zero."""
    return tf.where(known > 0, numerator / denominator, tf.ones_like(numerator))
