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


def _decaying(settings: Settings) -> dict[str, Any]:
    """Return the options of every rule with L2 decay in the gradient."""
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
