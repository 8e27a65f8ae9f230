from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload.settings import SettingError, Settings

pytestmark = pytest.mark.tensorflow


def model() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(4, name="fc"),
            keras.layers.BatchNormalization(name="bn"),
            keras.layers.Dropout(0.5),
        ],
        name="net",
    )


def ones(net: Any, factor: float = 1.0) -> list[Any]:
    import tensorflow as tf

    return [tf.fill(variable.shape, factor) for variable in net.trainable_variables]


def test_optimizer_variables_have_unique_paths() -> None:
    from payload.training.optimizers.optimizer import make_optimizer

    net = model()
    settings = Settings(optimizer="adam", precision="float16", ema_decay=0.9)
    paths = [variable.path for variable in make_optimizer(settings, net).variables]
    assert len(set(paths)) == len(paths)
    assert "adam/iteration" in paths
    assert "loss_scale/scale" in paths
    assert "average/net_bn_moving_mean" in paths
    assert not set(paths) & {variable.path for variable in net.variables}


def test_gradients_are_clipped_by_their_norm_together() -> None:
    import tensorflow as tf

    from payload.training.optimizers.optimizer import make_optimizer

    net = model()
    optimizer = make_optimizer(Settings(momentum=0.0, clip_norm=2.0), net)
    before = [np.asarray(value) for value in net.trainable_weights]
    optimizer.apply(ones(net, 10.0), tf.constant(1.0))
    moved = [a - np.asarray(b) for a, b in zip(before, net.trainable_weights, strict=True)]
    assert np.sqrt(sum(float((part**2).sum()) for part in moved)) == pytest.approx(2.0, rel=1e-5)


def test_decay_is_not_clipped_with_the_gradients() -> None:
    import tensorflow as tf

    from payload.training.optimizers.optimizer import make_optimizer

    net = model()
    optimizer = make_optimizer(Settings(momentum=0.0, clip_norm=1e-6, weight_decay=0.5), net)
    before = np.asarray(net.get_layer("fc").kernel)
    optimizer.apply(ones(net), tf.constant(1.0))
    assert np.asarray(net.get_layer("fc").kernel) == pytest.approx(before * 0.5, abs=1e-5)


def test_loss_scale_without_float16_is_rejected_with_fix() -> None:
    from payload.training.optimizers.optimizer import make_optimizer

    with pytest.raises(SettingError, match=r"--loss-scale 1024: only float16 needs it; set --loss-scale 0, or --prec"):
        make_optimizer(Settings(loss_scale=1024), model())


def test_scaled_loss_gives_the_same_weights() -> None:
    import tensorflow as tf

    from payload.training.optimizers.optimizer import make_optimizer

    ends = []
    for chosen in (Settings(), Settings(precision="float16", loss_scale=1024), Settings(precision="float16")):
        net = model()
        optimizer = make_optimizer(chosen, net)
        scale = optimizer.scaled(tf.constant(1.0))
        optimizer.apply([gradient * scale for gradient in ones(net)], tf.constant(0.1))
        ends.append(np.concatenate([np.ravel(weights) for weights in net.get_weights()]))
    assert (ends[0] == ends[1]).all()
    assert (ends[0] == ends[2]).all()


class Steps:
    """Apply gradients with a loss scale, in a graph, and count the updates."""

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
    from payload.training.optimizers.optimizer import LossScale

    return Steps(LossScale(dynamic=True))


def reset(steps: Steps, scale: float, good_steps: int = 0) -> None:
    for variable, value in zip(steps.scale.variables, (scale, good_steps), strict=True):
        variable.assign(value)
    steps.updates.assign(0)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_nan_gradient_halves_scale_and_skips_update(dynamic: Steps, value: float) -> None:
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


def test_at_scale_one_bad_gradient_is_applied(dynamic: Steps) -> None:
    reset(dynamic, 1)
    dynamic.take(float("nan"))
    assert int(dynamic.updates.numpy()) == 1


def test_given_scale_is_fixed() -> None:
    from payload.training.optimizers.optimizer import LossScale

    steps = Steps(LossScale(1024, dynamic=False))
    for value in (1.0, float("inf")):
        steps.take(value)
    assert state_of(steps) == (1024, 0)
    assert int(steps.updates.numpy()) == 2


@settings(deadline=None, max_examples=30)
@given(st.lists(st.booleans(), max_size=30))
def test_scale_is_a_power_of_two_never_below_one(good: list[bool]) -> None:
    from payload.training.optimizers.optimizer import LossScale

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


@pytest.fixture
def net() -> Any:
    return model()


def test_moving_average_starts_faster_than_its_decay(net: Any) -> None:
    import tensorflow as tf

    from payload.training.optimizers.optimizer import WeightAverage

    average = WeightAverage(net.variables, decay=0.3)
    kernel = net.get_layer("fc").kernel
    expected = np.asarray(kernel)
    graph = tf.function(average.update, autograph=False)
    for step in range(4):
        kernel.assign(np.asarray(kernel) + 1)
        graph(tf.constant(step, tf.int64))
        decay = min(0.3, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * np.asarray(kernel)
    assert np.asarray(average.variables[0]) == pytest.approx(expected, rel=1e-6)


def test_moments_are_averaged_and_random_states_are_not(net: Any) -> None:
    from payload.training.optimizers.optimizer import WeightAverage

    assert [variable.path for variable in WeightAverage(net.variables, decay=0.9).variables] == [
        "average/net_fc_kernel",
        "average/net_fc_bias",
        "average/net_bn_gamma",
        "average/net_bn_beta",
        "average/net_bn_moving_mean",
        "average/net_bn_moving_variance",
    ]


def test_model_weights_are_restored_even_after_an_error(net: Any) -> None:
    from payload.training.optimizers.optimizer import WeightAverage

    average = WeightAverage(net.variables, decay=0.9)
    net.get_layer("fc").kernel.assign(np.full((3, 4), 7.0))
    weights, averages = ([np.asarray(v) for v in values] for values in (net.variables, average.variables))
    with pytest.raises(KeyError), average.in_use():
        assert (np.asarray(net.get_layer("fc").kernel) != 7.0).all()
        raise KeyError
    for before, now in zip((*weights, *averages), (*net.variables, *average.variables), strict=True):
        assert (before == np.asarray(now)).all()
