"""Update rules that Keras lacks, or implements differently from their publication.

They are Keras optimizers, so Keras builds, names and saves their variables. By default, vectors (biases, and the scale
and offset of a normalization) do not decay and have no local rate, as in the published runs. A bias starts at zero and
would stay near it if its rate followed its norm. `decay_all` includes vectors.

If a norm is zero, the layer's local rate is the global rate.
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
    """An optimizer that adds L2 decay to the gradient: the derivative of `l2` / 2 times the squared weights."""

    def __init__(self, *, l2: float, decay_all: bool, **options: Any) -> None:
        super().__init__(**options)
        self._l2, self._decay_all = l2, decay_all

    def _is_decayed(self, variable: Any) -> bool:
        """Return whether a weight decays. If the rule has local rates, such a weight also gets one."""
        return self._decay_all or decays(variable)

    def _decayed(self, gradient: Any, variable: Any) -> Any:
        return gradient + self._l2 * variable if self._l2 and self._is_decayed(variable) else gradient

    def _slot(self, slots: list[Any], variable: Any) -> Any:
        """Return the rule's TensorFlow variable for a weight."""
        return slots[self._get_variable_index(variable)].value


class Momentum(_Decaying):
    """SGD with momentum: v = m v + g, w = w - rate v; g includes L2 decay.

    The rate multiplies the velocity, as in PyTorch's SGD and TensorFlow's MomentumOptimizer, which the published runs
    used. In Keras's SGD the velocity includes the rate, so that a change of rate takes effect over 1 / (1 - m) steps.
    """

    def __init__(self, *, momentum: float, **options: Any) -> None:
        super().__init__(**options)
        self._momentum = momentum

    def build(self, variables: Any) -> None:
        """Create the velocity variables."""
        super().build(variables)
        self._velocities = self.add_optimizer_variables(variables, "momentum") if self._momentum else []

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Add L2 decay to the gradient, then update one weight and its velocity."""
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
    """LARS: a local rate for each layer from its norms (You, Gitman and Ginsburg 2017, arXiv:1708.03888, algorithm 1).

    Local rate l = eta |w| / (|g| + decay |w|); v = m v + rate l (g + decay w); w = w - v.
    """

    def __init__(self, *, trust_coefficient: float, **options: Any) -> None:
        super().__init__(**options)
        self._eta = trust_coefficient

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one weight and its velocity. If the weight decays, its layer's local rate multiplies the rate."""
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
    """LARC: a layer's rate is the smaller of its local rate and the global rate.

    As in NVIDIA's LARC (the "clip" mode of OpenSeq2Seq and Apex), which the runs on 128 GPUs and more used. The
    gradient, including decay, is multiplied by min(l / rate, 1). Then momentum is applied, with the rate outside of the
    velocity.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one weight and its velocity.

        If the weight decays, the rate is its layer's local rate, but at most `learning_rate`.
        """
        rate = tf.cast(learning_rate, variable.dtype)
        step = self._decayed(gradient, variable)
        if self._is_decayed(variable):
            step *= tf.minimum(self._local_rate(gradient, variable) / rate, 1)
        self._move(step, variable, rate)


class Lamb(_Decaying):
    """LAMB: Adam with a local rate for each layer from its norms (You et al. 2019, arXiv:1904.00962, algorithm 2).

    r = m / (sqrt(v) + epsilon) with bias-corrected moments; u = r + decay w; w = w - rate |w| / |u| u. Keras's Lamb
    excludes the decay from u, and therefore from its norm.
    """

    def __init__(self, *, beta_1: float, beta_2: float, **options: Any) -> None:
        super().__init__(**options)
        self._beta_1, self._beta_2 = beta_1, beta_2

    def build(self, variables: Any) -> None:
        """Create the variables of both moments."""
        super().build(variables)
        self._first, self._second = self.add_optimizer_variables(variables, ["momentum", "velocity"])

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one weight and its moments. If the weight decays, its layer's local rate multiplies the rate."""
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
        """Update one weight with Keras's Adam, after adding L2 decay to the gradient."""
        super().update_step(self._decayed(gradient, variable), variable, learning_rate)


class RmsProp(_Decaying, keras.optimizers.RMSprop):  # type: ignore[misc]  # Keras has no types
    """Keras's RMSprop with L2 decay in the gradient."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one weight with Keras's RMSprop, after adding L2 decay to the gradient."""
        super().update_step(self._decayed(gradient, variable), variable, learning_rate)


def decays(variable: Any) -> bool:
    """Return whether a weight decays by default: matrices and filters do, biases and normalization scales do not."""
    return len(variable.shape) > 1


def _ratio(numerator: Any, denominator: Any, known: Any) -> Any:
    """Divide two tensors; return 1 if `known` is zero, because the quotient is then undefined."""
    return tf.where(known > 0, numerator / denominator, tf.ones_like(numerator))
