from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.tensorflow


class Steps:
    """Apply gradients by a loss scale, in a graph, and count the updates."""

    def __init__(self, scale: Any) -> None:
        import tensorflow as tf

        self.scale = scale
        self.updates = tf.Variable(0)
        self.seen = tf.Variable(0.0)

        def update(gradients: Any) -> None:
            self.updates.assign_add(1)
            self.seen.assign(gradients[0][0])

        self._graph = tf.function(lambda gradient: scale.apply([gradient], update), autograph=False)

    def take(self, value: float) -> None:
        import tensorflow as tf

        self._graph(tf.constant([value, 1.0]))


def state_of(steps: Steps) -> tuple[float, int]:
    scale, good_steps = steps.scale.variables
    return float(scale.numpy()), int(good_steps.numpy())


@pytest.fixture(scope="module")
def dynamic() -> Steps:
    from payload.training.optimizers.loss_scale import LossScale

    return Steps(LossScale(dynamic=True))


def reset(steps: Steps, scale: float, good_steps: int = 0) -> None:
    for variable, value in zip(steps.scale.variables, (scale, good_steps), strict=True):
        variable.assign(value)
    steps.updates.assign(0)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_gradient_that_is_no_number_halves_the_scale_and_updates_nothing(dynamic: Steps, value: float) -> None:
    reset(dynamic, 1024, 17)
    dynamic.take(value)
    assert state_of(dynamic) == (512, 0)
    assert int(dynamic.updates.numpy()) == 0


def test_after_two_thousand_good_steps_the_scale_doubles(dynamic: Steps) -> None:
    reset(dynamic, 1024, 1998)
    dynamic.take(1.0)
    assert state_of(dynamic) == (1024, 1999)
    dynamic.take(1.0)
    assert state_of(dynamic) == (2048, 0)


def test_gradients_are_divided_by_the_scale(dynamic: Steps) -> None:
    reset(dynamic, 4096)
    dynamic.take(3.0)
    assert float(dynamic.seen.numpy()) == 3.0 / 4096


def test_at_a_scale_of_one_a_bad_gradient_is_let_through_to_be_seen_in_the_loss(dynamic: Steps) -> None:
    reset(dynamic, 1)
    dynamic.take(float("nan"))
    assert int(dynamic.updates.numpy()) == 1


def test_a_scale_that_was_given_stays() -> None:
    from payload.training.optimizers.loss_scale import LossScale

    steps = Steps(LossScale(1024, dynamic=False))
    for value in (1.0, float("inf")):
        steps.take(value)
    assert state_of(steps) == (1024, 0)
    assert int(steps.updates.numpy()) == 2


@settings(deadline=None, max_examples=30)
@given(st.lists(st.booleans(), max_size=30))
def test_the_scale_is_a_power_of_two_never_below_one(good: list[bool]) -> None:
    from payload.training.optimizers.loss_scale import LossScale

    steps = Steps(LossScale(4, dynamic=True)) if not _SHARED else _SHARED[0]
    _SHARED[:] = [steps]
    reset(steps, 4)
    expected, updates = 4.0, 0
    for fine in good:
        steps.take(1.0 if fine else float("nan"))
        updates += fine or expected == 1
        expected = expected if fine or expected == 1 else expected / 2
    assert state_of(steps)[0] == expected
    assert int(steps.updates.numpy()) == updates


_SHARED: list[Steps] = []
"""One graph for all examples."""
