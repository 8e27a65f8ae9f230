from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def net() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.layers.Input((2,)),
            keras.layers.Dense(3, name="fc"),
            keras.layers.BatchNormalization(name="bn"),
            keras.layers.Dropout(0.1),
        ],
        name="net",
    )


def test_the_average_follows_by_its_decay_and_more_quickly_at_first(net: Any) -> None:
    import tensorflow as tf

    from payload.training.optimizers.weight_average import WeightAverage

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
    from payload.training.optimizers.weight_average import WeightAverage

    assert [variable.path for variable in WeightAverage(net.variables, decay=0.9).variables] == [
        "average/net_fc_kernel",
        "average/net_fc_bias",
        "average/net_bn_gamma",
        "average/net_bn_beta",
        "average/net_bn_moving_mean",
        "average/net_bn_moving_variance",
    ]


def test_the_model_gets_its_own_weights_back_even_after_an_error(net: Any) -> None:
    from payload.training.optimizers.weight_average import WeightAverage

    average = WeightAverage(net.variables, decay=0.9)
    net.get_layer("fc").kernel.assign(np.full((2, 3), 7.0))
    weights, averages = ([np.asarray(v) for v in values] for values in (net.variables, average.variables))
    with pytest.raises(KeyError), average.in_use():
        assert (np.asarray(net.get_layer("fc").kernel) != 7.0).all()
        raise KeyError
    for before, now in zip((*weights, *averages), (*net.variables, *average.variables), strict=True):
        assert (before == np.asarray(now)).all()
