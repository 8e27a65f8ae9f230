"""Each rule compared with its paper's formula, written in NumPy in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from payload.settings import Settings

pytestmark = pytest.mark.tensorflow

Array = npt.NDArray[np.float64]
STEPS = 4
RATES = (0.1, 0.2, 0.2, 0.05)
"""Changing rates reveal whether the rate is applied inside or outside the velocity."""
SETTINGS = Settings(weight_decay=0.02, momentum=0.8, beta2=0.9, trust_coefficient=0.05)


@dataclasses.dataclass
class Slots:
    """The state that a formula keeps for a weight."""

    first: Any = 0.0
    second: Any = 0.0


def sgd(w: Array, g: Array, rate: float, step: int, slots: Slots, decay: float, own_rate: bool) -> Array:
    """Sutskever et al. 2013, as in PyTorch and TensorFlow's MomentumOptimizer; decay as in Goyal et al. 2017."""
    slots.first = 0.8 * slots.first + g + decay * w
    return np.asarray(w - rate * slots.first)


def rmsprop(w: Array, g: Array, rate: float, step: int, slots: Slots, decay: float, own_rate: bool) -> Array:
    """Tieleman and Hinton 2012, lecture 6.5, with momentum as in Graves 2013, arXiv:1308.0850, without centering."""
    g = g + decay * w
    slots.second = 0.9 * slots.second + 0.1 * g**2
    slots.first = 0.8 * slots.first + rate * g / np.sqrt(slots.second + 1e-7)
    return np.asarray(w - slots.first)


def adam(w: Array, g: Array, rate: float, step: int, slots: Slots, decay: float, own_rate: bool) -> Array:
    """Kingma and Ba 2014, arXiv:1412.6980, algorithm 1."""
    return w - rate * corrected(g + decay * w, step, slots, 1e-8)


def adamw(w: Array, g: Array, rate: float, step: int, slots: Slots, decay: float, own_rate: bool) -> Array:
    """Loshchilov and Hutter 2017, arXiv:1711.05101, algorithm 2, with the schedule in the rate."""
    return w - rate * (corrected(g, step, slots, 1e-8) + decay * w)


def lars(w: Array, g: Array, rate: float, step: int, slots: Slots, decay: float, own_rate: bool) -> Array:
    """You, Gitman and Ginsburg 2017, arXiv:1708.03888, algorithm 1."""
    local = 0.05 * norm(w) / (norm(g) + decay * norm(w)) if own_rate else 1.0
    slots.first = 0.8 * slots.first + rate * local * (g + decay * w)
    return np.asarray(w - slots.first)


def larc(w: Array, g: Array, rate: float, step: int, slots: Slots, decay: float, own_rate: bool) -> Array:
    """NVIDIA Apex, `apex/parallel/LARC.py`, with clip."""
    local = min(0.05 * norm(w) / (norm(g) + decay * norm(w)) / rate, 1.0) if own_rate else 1.0
    slots.first = 0.8 * slots.first + local * (g + decay * w)
    return np.asarray(w - rate * slots.first)


def lamb(w: Array, g: Array, rate: float, step: int, slots: Slots, decay: float, own_rate: bool) -> Array:
    """You et al. 2019, arXiv:1904.00962, algorithm 2."""
    update = corrected(g, step, slots, 1e-6) + decay * w
    return w - rate * (norm(w) / norm(update) if own_rate else 1.0) * update


def corrected(g: Array, step: int, slots: Slots, epsilon: float) -> Array:
    slots.first = 0.8 * slots.first + 0.2 * g
    slots.second = 0.9 * slots.second + 0.1 * g**2
    mean, square = slots.first / (1 - 0.8**step), slots.second / (1 - 0.9**step)
    return np.asarray(mean / (np.sqrt(square) + epsilon))


def norm(array: Array) -> float:
    return float(np.linalg.norm(array))


FORMULAS: dict[str, Callable[..., Array]] = {
    "sgd": sgd,
    "rmsprop": rmsprop,
    "adam": adam,
    "adamw": adamw,
    "lars": lars,
    "larc": larc,
    "lamb": lamb,
}


def model() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4, bias_initializer="ones", name="fc")])


def gradients() -> list[list[Array]]:
    drawn = np.random.default_rng(5)
    return [[drawn.normal(size=(3, 4)), drawn.normal(size=4)] for _ in range(STEPS)]


def trained(settings: Settings, given: list[list[Array]]) -> list[Array]:
    """Let our optimizer take all steps; return the weights."""
    import tensorflow as tf

    from payload.training.optimizers.optimizer import make_optimizer

    net = model()
    optimizer = make_optimizer(settings, net)

    step = tf.function(lambda rate, *values: optimizer.apply(values, rate), autograph=False)
    for rate, values in zip(RATES, given, strict=True):
        step(tf.constant(rate), *(tf.constant(value, tf.float32) for value in values))
    return [np.asarray(weight, np.float64) for weight in net.get_weights()]


def by_formula(settings: Settings, given: list[list[Array]]) -> list[Array]:
    """Take the same steps with the formula."""
    weights = [np.asarray(weight, np.float64) for weight in model().get_weights()]
    slots = [Slots() for _ in weights]
    for number, (rate, values) in enumerate(zip(RATES, given, strict=True), start=1):
        for place, gradient in enumerate(values):
            chosen = settings.decay_all or weights[place].ndim > 1
            decay = settings.weight_decay if chosen else 0.0
            weights[place] = FORMULAS[settings.optimizer](
                weights[place], gradient, rate, number, slots[place], decay, chosen
            )
    return weights


def largest_difference(ours: list[Array], theirs: list[Array]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("decay_all", [False, True], ids=["matrices", "all"])
@pytest.mark.parametrize("name", FORMULAS)
def test_rule_matches_its_paper_and_excludes_vectors_by_default(name: str, decay_all: bool) -> None:
    settings = dataclasses.replace(SETTINGS, optimizer=name, decay_all=decay_all)
    assert largest_difference(trained(settings, gradients()), by_formula(settings, gradients())) < 3e-6


@pytest.mark.parametrize("name", ["sgd", "lars", "larc"])
def test_rule_without_momentum_has_no_state(name: str) -> None:
    from payload.training.optimizers.optimizer import make_optimizer

    settings = dataclasses.replace(SETTINGS, optimizer=name, momentum=0.0)
    assert len(make_optimizer(settings, model()).variables) == 2  # rate and number of steps
    moved = trained(settings, gradients())
    assert all(np.isfinite(weights).all() for weights in moved)
    assert largest_difference(moved, [np.asarray(weights) for weights in model().get_weights()]) > 1e-3


@pytest.mark.parametrize("name", ["lars", "larc", "lamb"])
def test_layer_without_norm_uses_common_rate(name: str) -> None:
    settings = dataclasses.replace(SETTINGS, optimizer=name)
    nothing = [[np.zeros((3, 4)), np.zeros(4)] for _ in range(STEPS)]
    assert all(np.isfinite(weights).all() for weights in trained(settings, nothing))


def test_larc_bounds_the_rate_that_lars_would_raise() -> None:
    small = [[value * 1e-3 for value in values] for values in gradients()]
    generous = dataclasses.replace(SETTINGS, trust_coefficient=1.0, weight_decay=0.0)
    start = [np.asarray(weights) for weights in model().get_weights()]
    moved = {
        name: largest_difference(trained(dataclasses.replace(generous, optimizer=name), small), start)
        for name in ("sgd", "lars", "larc")
    }
    assert moved["larc"] == pytest.approx(moved["sgd"], rel=1e-3)
    assert moved["lars"] > 10 * moved["sgd"]
