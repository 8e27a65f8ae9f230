"""The optimizer of a run: update rule, loss scale, gradient clipping and moving average of the weights."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import keras
import tensorflow as tf

from payload.settings import SettingError, Settings
from payload.training.optimizers import update_rules


class WeightAverage:
    """Keep the moving average of a model's weights, and of the moments of its batch normalizations.

    The moments match the weights at the time, so they are averaged too. The decay is smaller in the first steps:
    (1 + n) / (10 + n) after n steps, as in TensorFlow's ExponentialMovingAverage. Otherwise, the random initial weights
    would dominate the average for a long time.
    """

    def __init__(self, variables: Sequence[Any], decay: float) -> None:
        """Start from the current values. Variables that are not floating-point (such as seeds) are excluded."""
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
        """Move the average toward the weights (within the graph).

        `steps`: number of earlier updates. The first updates move the average further than later ones.
        """
        count = tf.cast(steps, tf.float32)
        share = 1 - tf.minimum(self._decay, (1 + count) / (10 + count))
        for average, variable in zip(self.variables, self._averaged, strict=True):
            difference = variable.value - average.value
            average.value.assign_add(tf.cast(share, difference.dtype) * difference)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Use the average as the model's weights within a block, then restore the weights exactly."""
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


FIRST_SCALE: Final = 2.0**15
GOOD_STEPS: Final = 2000
"""Number of successful steps after which the scale is doubled."""


class LossScale:
    """Scale the loss to avoid float16 underflow, and undo it in the gradients. `dynamic`: adapt the scale."""

    def __init__(self, scale: float = FIRST_SCALE, *, dynamic: bool) -> None:
        self._dynamic = dynamic
        with keras.name_scope("loss_scale", caller=self):
            self._scale = keras.Variable(scale, name="scale", dtype="float32", trainable=False)
            self._good_steps = keras.Variable(0, name="good_steps", dtype="int32", trainable=False)

    @property
    def variables(self) -> list[Any]:
        """Return the Keras variables to save in checkpoints."""
        return [self._scale, self._good_steps]

    def scaled(self, loss: Any) -> Any:
        """Multiply a loss by the scale (within the graph)."""
        return loss * tf.cast(self._scale.value, loss.dtype)

    def apply(self, gradients: Sequence[Any], update: Callable[[Sequence[Any]], None]) -> None:
        """Unscale summed gradients and pass them to `update`.

        If a gradient is not finite, a dynamic scale is halved, and the update is skipped. At a scale of 1 the update is
        not skipped, because the scale is not the cause. The loss will then show the problem. After GOOD_STEPS updates
        without a halving, the scale is doubled.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Update the weights with summed gradients. All variables change in place."""

    rule: Any
    """Keras optimizer, already built."""
    clip_norm: float
    """Maximum norm of all gradients together; 0: no clipping."""
    loss_scale: LossScale | None
    average: WeightAverage | None

    @property
    def variables(self) -> list[Any]:
        """Return the Keras variables to save with the weights. Each has a unique `path`."""
        further = [part.variables for part in (self.loss_scale, self.average) if part]
        return [*self.rule.variables, *(variable for variables in further for variable in variables)]

    def scaled(self, loss: Any) -> Any:
        """Return the loss to differentiate: multiplied by the loss scale, if there is one (within the graph)."""
        return self.loss_scale.scaled(loss) if self.loss_scale else loss

    def apply(self, gradients: Sequence[Any], learning_rate: Any) -> None:
        """Update the weights and their average with the gradients of a scaled loss (within the graph).

        The gradients are summed over all ranks. They are clipped to `clip_norm` after the loss scale is undone. A
        dynamic loss scale may skip the update (see `LossScale.apply`).
        """
        self.rule.learning_rate.assign(learning_rate)
        if self.loss_scale:
            self.loss_scale.apply(gradients, self._update)
        else:
            self._update(gradients)

    def averaged(self) -> AbstractContextManager[None]:
        """Use the moving average as the model's weights within a block; without one, the block changes nothing."""
        return self.average.in_use() if self.average else contextlib.nullcontext()

    def _update(self, gradients: Sequence[Any]) -> None:
        if self.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm)
        steps = tf.identity(self.rule.iterations.value)
        self.rule.apply(gradients)
        if self.average:
            self.average.update(steps)


def make_optimizer(settings: Settings, model: Any) -> Optimizer:
    """Build the optimizer of a run for all weights of a model.

    Raises SettingError if a loss scale is set for another precision than float16.
    """
    rule = _RULES[settings.optimizer](settings)
    if isinstance(rule, keras.optimizers.AdamW) and not settings.decay_all:
        rule.exclude_from_weight_decay([v for v in model.trainable_variables if not update_rules.decays(v)])
    rule.build(model.trainable_variables)
    return Optimizer(
        rule=rule,
        clip_norm=settings.clip_norm,
        loss_scale=_loss_scale(settings),
        average=WeightAverage(model.variables, settings.ema_decay) if settings.ema_decay else None,
    )


def _loss_scale(settings: Settings) -> LossScale | None:
    if settings.precision != "float16":
        if settings.loss_scale:
            rule = f"only float16 needs it; set --loss-scale 0, or --precision float16 instead of {settings.precision}"
            raise SettingError("--loss-scale", settings.loss_scale, rule)
        return None
    return LossScale(settings.loss_scale, dynamic=False) if settings.loss_scale else LossScale(dynamic=True)


def _decaying(settings: Settings) -> dict[str, Any]:
    """Return the options shared by all rules with L2 decay in the gradient."""
    return {
        "learning_rate": settings.learning_rate,
        "l2": settings.weight_decay,
        "decay_all": settings.decay_all,
        "name": settings.optimizer,
    }


def _layerwise(settings: Settings) -> dict[str, Any]:
    """Return the options of LARS and LARC."""
    return {
        "trust_coefficient": settings.trust_coefficient,
        "momentum": settings.momentum,
        **_decaying(settings),
    }


def _moments(settings: Settings) -> dict[str, Any]:
    """Return the decay rates of Adam and its variants."""
    return {"beta_1": settings.momentum, "beta_2": settings.beta2}


_RULES: dict[str, Callable[[Settings], Any]] = {
    "sgd": lambda s: update_rules.Momentum(momentum=s.momentum, **_decaying(s)),
    "rmsprop": lambda s: update_rules.RmsProp(rho=s.beta2, momentum=s.momentum, **_decaying(s)),
    "adam": lambda s: update_rules.Adam(epsilon=update_rules.ADAM_EPSILON, **_moments(s), **_decaying(s)),
    "adamw": lambda s: keras.optimizers.AdamW(
        learning_rate=s.learning_rate,
        weight_decay=s.weight_decay,
        epsilon=update_rules.ADAM_EPSILON,
        name=s.optimizer,
        **_moments(s),
    ),
    "lars": lambda s: update_rules.Lars(**_layerwise(s)),
    "larc": lambda s: update_rules.Larc(**_layerwise(s)),
    "lamb": lambda s: update_rules.Lamb(**_moments(s), **_decaying(s)),
}
