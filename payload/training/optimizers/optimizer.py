"""The optimizer of a run, and what goes with it: loss scale, clipping and the moving average of the weights."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from payload.settings import SettingError, Settings
from payload.training.optimizers import update_rules
from payload.training.optimizers.loss_scale import LossScale
from payload.training.optimizers.weight_average import WeightAverage


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Update weights with summed gradients. All variables change in place."""

    rule: Any
    """Keras optimizer, built."""
    clip_norm: float
    """Largest norm of all gradients together; 0: not clipped."""
    loss_scale: LossScale | None
    average: WeightAverage | None

    @property
    def variables(self) -> list[Any]:
        """List the Keras variables that must be saved with the weights, each with a `path` of its own."""
        further = [part.variables for part in (self.loss_scale, self.average) if part]
        return [*self.rule.variables, *(variable for variables in further for variable in variables)]

    def scaled(self, loss: Any) -> Any:
        """Return the loss of which gradients are to be taken (within the graph)."""
        return self.loss_scale.scaled(loss) if self.loss_scale else loss

    def apply(self, gradients: Sequence[Any], learning_rate: Any) -> None:
        """Update the weights with the gradients of a scaled loss, summed over all ranks (within the graph)."""
        self.rule.learning_rate.assign(learning_rate)
        if self.loss_scale:
            self.loss_scale.apply(gradients, self._update)
        else:
            self._update(gradients)

    def averaged(self) -> AbstractContextManager[None]:
        """Use the moving average of the weights within a block, where one is kept."""
        return self.average.in_use() if self.average else contextlib.nullcontext()

    def _update(self, gradients: Sequence[Any]) -> None:
        if self.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm)
        steps = tf.identity(self.rule.iterations.value)
        self.rule.apply(gradients)
        if self.average:
            self.average.update(steps)


def make_optimizer(settings: Settings, model: Any) -> Optimizer:
    """Build the optimizer of a run for all weights of a model. Raises SettingError."""
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
            rule = f"only float16 needs it; leave it out, or give --precision float16 in place of {settings.precision}"
            raise SettingError("--loss-scale", settings.loss_scale, rule)
        return None
    return LossScale(settings.loss_scale, dynamic=False) if settings.loss_scale else LossScale(dynamic=True)


def _common(settings: Settings) -> dict[str, Any]:
    return {
        "learning_rate": settings.learning_rate,
        "l2": settings.weight_decay,
        "decay_all": settings.decay_all,
        "name": settings.optimizer,
    }


def _sgd(settings: Settings) -> Any:
    return update_rules.Momentum(momentum=settings.momentum, **_common(settings))


def _rmsprop(settings: Settings) -> Any:
    return update_rules.RmsProp(rho=settings.beta2, momentum=settings.momentum, **_common(settings))


def _adam(settings: Settings) -> Any:
    decay = _common(settings)
    return update_rules.Adam(
        beta_1=settings.momentum, beta_2=settings.beta2, epsilon=update_rules.ADAM_EPSILON, **decay
    )


def _adamw(settings: Settings) -> Any:
    return keras.optimizers.AdamW(
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        beta_1=settings.momentum,
        beta_2=settings.beta2,
        epsilon=update_rules.ADAM_EPSILON,
        name=settings.optimizer,
    )


def _lars(settings: Settings) -> Any:
    return update_rules.Lars(
        trust_coefficient=settings.trust_coefficient, momentum=settings.momentum, **_common(settings)
    )


def _larc(settings: Settings) -> Any:
    return update_rules.Larc(
        trust_coefficient=settings.trust_coefficient, momentum=settings.momentum, **_common(settings)
    )


def _lamb(settings: Settings) -> Any:
    return update_rules.Lamb(beta_1=settings.momentum, beta_2=settings.beta2, **_common(settings))


_RULES: dict[str, Callable[[Settings], Any]] = {
    "sgd": _sgd,
    "rmsprop": _rmsprop,
    "adam": _adam,
    "adamw": _adamw,
    "lars": _lars,
    "larc": _larc,
    "lamb": _lamb,
}
