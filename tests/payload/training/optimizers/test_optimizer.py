from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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


def test_all_variables_have_paths_of_their_own_and_belong_to_nothing_else() -> None:
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


def test_a_loss_scale_without_float16_is_refused_with_what_to_do() -> None:
    from payload.training.optimizers.optimizer import make_optimizer

    with pytest.raises(SettingError, match=r"--loss-scale 1024: only float16 needs it; leave it out, or give"):
        make_optimizer(Settings(loss_scale=1024), model())


def test_a_scaled_loss_gives_the_same_weights() -> None:
    import tensorflow as tf

    from payload.training.optimizers.optimizer import make_optimizer

    ends = []
    for settings in (Settings(), Settings(precision="float16", loss_scale=1024), Settings(precision="float16")):
        net = model()
        optimizer = make_optimizer(settings, net)
        scale = optimizer.scaled(tf.constant(1.0))
        optimizer.apply([gradient * scale for gradient in ones(net)], tf.constant(0.1))
        ends.append(np.concatenate([np.ravel(weights) for weights in net.get_weights()]))
    assert (ends[0] == ends[1]).all()
    assert (ends[0] == ends[2]).all()
