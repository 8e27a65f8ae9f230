from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytestmark = pytest.mark.tensorflow

Array = npt.NDArray[Any]
MOMENTUM, EPSILON = 0.9, 1e-3


def layer(shape: tuple[int, ...], dtype: str = "float32", **options: Any) -> Any:
    """Build a layer with a scale and an offset that differ from the initial ones."""
    from payload.models.normalization import BatchNormalization

    made = BatchNormalization(momentum=MOMENTUM, epsilon=EPSILON, dtype=dtype, name="bn", **options)
    made.build((None, *shape))
    made.gamma.assign(np.linspace(0.5, 2, shape[-1]))
    made.beta.assign(np.linspace(-1, 1, shape[-1]))
    return made


def images(count: int, shape: tuple[int, ...], seed: int = 3) -> Array:
    return np.random.default_rng(seed).normal(2, 3, size=(count, *shape))


def expected(given: Array) -> tuple[Array, Array, Array]:
    """Compute outputs, moving mean and moving variance by algorithms 1 and 2 of the paper, in NumPy."""
    axes = tuple(range(given.ndim - 1))
    mean, variance = given.mean(axes), given.var(axes)
    channels, values = given.shape[-1], given.size / given.shape[-1]
    outputs = np.linspace(0.5, 2, channels) * (given - mean) / np.sqrt(variance + EPSILON) + np.linspace(
        -1, 1, channels
    )
    unseen = variance * values / max(values - 1, 1)
    return outputs, 0.1 * mean, 0.9 + 0.1 * unseen


@pytest.mark.parametrize("dtype", ["float32", "float64"], ids=["fused", "composed"])
@pytest.mark.parametrize("shape", [(4, 5, 3), (3,)], ids=["images", "features"])
def test_normalization_and_moving_moments_match_the_paper(shape: tuple[int, ...], dtype: str) -> None:
    made, given = layer(shape, dtype), images(6, shape)
    outputs, mean, variance = expected(given)
    assert made(given.astype(dtype), training=True).numpy() == pytest.approx(outputs, abs=1e-4)
    assert np.asarray(made.moving_mean) == pytest.approx(mean, rel=1e-5)
    assert np.asarray(made.moving_variance) == pytest.approx(variance, rel=1e-5)


@pytest.mark.parametrize("shape", [(4, 5, 3), (3,)], ids=["images", "features"])
def test_inference_uses_moving_moments_like_keras(shape: tuple[int, ...]) -> None:
    import keras

    made, theirs = layer(shape), keras.layers.BatchNormalization(epsilon=EPSILON)
    theirs.build((None, *shape))
    made.moving_mean.assign(np.arange(3))
    made.moving_variance.assign(np.arange(1, 4))
    theirs.set_weights(made.get_weights())
    given = images(2, shape).astype(np.float32)
    assert made(given).numpy() == pytest.approx(theirs(given).numpy(), abs=1e-5)


def factors(given: Array) -> Array:
    """Return the factor of each output in the loss, chosen so that no two gradients are equal."""
    return np.cos(np.arange(given.size)).reshape(given.shape)


def gradients(made: Any, given: Array, of_outputs: Array, weights: Array | None = None) -> list[Array]:
    """Differentiate the sum of the outputs times `of_outputs` by inputs, scale and offset."""
    import tensorflow as tf

    from payload.models.normalization import counting

    inputs = tf.constant(given)
    with tf.GradientTape() as tape, counting(weights):
        tape.watch(inputs)
        loss = tf.reduce_sum(made(inputs, training=True) * tf.constant(of_outputs, inputs.dtype))
    return [np.asarray(value) for value in tape.gradient(loss, [inputs, made.gamma.value, made.beta.value])]


def test_composed_gradient_is_that_of_keras() -> None:
    import keras

    given = images(6, (4, 5, 3))
    made, theirs = layer((4, 5, 3), "float64"), keras.layers.BatchNormalization(epsilon=EPSILON, dtype="float64")
    theirs.build(given.shape)
    theirs.set_weights(made.get_weights())
    for ours, keras_own in zip(
        gradients(made, given, factors(given)), gradients(theirs, given, factors(given)), strict=True
    ):
        assert ours == pytest.approx(keras_own, abs=1e-10)


def test_fused_gradient_is_the_composed_one() -> None:
    given = images(6, (4, 5, 3))
    fused = gradients(layer((4, 5, 3)), given.astype(np.float32), factors(given))
    composed = gradients(layer((4, 5, 3), "float64"), given, factors(given))
    for ours, exact in zip(fused, composed, strict=True):
        assert ours == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("shape", [(4, 5, 3), (3,)], ids=["images", "features"])
def test_images_with_weight_zero_change_nothing(shape: tuple[int, ...]) -> None:
    from payload.models.normalization import counting

    given, weights = images(7, shape), np.array([1, 1, 0, 1, 1, 0, 1], np.float64)
    used, pull = weights > 0, factors(given)
    pull[~used] = 0
    in_place, *of_weights = gradients(layer(shape, "float64"), given, pull, weights)
    alone, *of_weights_alone = gradients(layer(shape, "float64"), given[used], pull[used])
    assert in_place[used] == pytest.approx(alone, abs=1e-10)
    assert not in_place[~used].any()
    for ours, theirs in zip(of_weights, of_weights_alone, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-10)
    with counting(weights):
        outputs = layer(shape, "float64")(given, training=True).numpy()
    assert outputs[used] == pytest.approx(expected(given[used])[0], abs=1e-8)
    assert (outputs[~used] == np.linspace(-1, 1, 3)).all()


def test_empty_batch_changes_nothing_and_stays_finite() -> None:
    import tensorflow as tf

    from payload.models.normalization import counting, update_moving_moments

    made, given = layer((4, 5, 3)), images(2, (4, 5, 3)).astype(np.float32)
    before = made.get_weights()
    with counting(tf.zeros([2])) as moments:
        outputs = made(given, training=True)
    update_moving_moments(moments.layers, moments.packed())
    assert np.isfinite(outputs.numpy()).all()
    assert all((a == b).all() for a, b in zip(before, made.get_weights(), strict=True))


def test_packed_moments_of_parts_add_up_to_those_of_all_images() -> None:
    from payload.models.normalization import counting, update_moving_moments

    made, given = layer((3,), "float64"), images(9, (3,))
    vectors = []
    for part in (given[:4], given[4:]):
        with counting(None) as moments:
            made(part, training=True)
        vectors.append(moments.packed())
    update_moving_moments(moments.layers, vectors[0] + vectors[1])
    assert np.asarray(made.moving_mean) == pytest.approx(expected(given)[1])
    own = (4 * given[:4].var(axis=0, ddof=1) + 5 * given[4:].var(axis=0, ddof=1)) / 9
    assert np.asarray(made.moving_variance) == pytest.approx(0.9 + 0.1 * own)


def test_moments_of_two_ranks_are_those_of_one_with_all_images() -> None:
    """Two ranks in one process: first each contributes its part of the sum, then both get the sum."""
    from payload.models.normalization import counting

    given, weights = images(8, (4, 5, 3)) + 1e4, np.array([1, 1, 1, 0, 1, 1, 1, 1], np.float64)
    halves = [(given[:4], weights[:4]), (given[4:], weights[4:])]
    said: list[tuple[str, Any]] = []

    def say(tensor: Any, name: str) -> Any:
        said.append((name, tensor))
        return tensor

    for part, counted in halves:
        with counting(counted, say):
            layer((4, 5, 3), "float64")(part, training=True)
    (name, first), (other_name, second) = said
    outputs = []
    for part, counted in halves:
        with counting(counted, lambda tensor, name: first + second):
            outputs.append(layer((4, 5, 3), "float64")(part, training=True).numpy()[counted > 0])
    assert name == other_name == "bn.forward"
    assert np.concatenate(outputs) == pytest.approx(expected(given[weights > 0])[0], abs=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_normalized_by_moments_in_full(dtype: str) -> None:
    import tensorflow as tf

    made, given = layer((4, 5, 3), dtype), images(6, (4, 5, 3)).astype(np.float32)
    outputs = made(given, training=True)
    assert outputs.dtype == made.compute_dtype
    assert made.moving_mean.dtype == "float32"
    assert tf.cast(outputs, tf.float32).numpy() == pytest.approx(expected(given)[0], abs=0.05)
    assert np.asarray(made.moving_mean) == pytest.approx(expected(given)[1], abs=2e-3)


def test_saved_network_has_the_same_layer_again(tmp_path: Path) -> None:
    import keras

    from payload.models.normalization import BatchNormalization

    model = keras.Sequential([keras.layers.Input((4, 4, 2)), BatchNormalization(momentum=0.8, name="bn")])
    model.save(tmp_path / "model.keras")
    found = keras.saving.load_model(tmp_path / "model.keras").get_layer("bn")
    assert type(found) is BatchNormalization
    assert found.momentum == 0.8


@pytest.mark.parametrize("options", [{"scale": False}, {"center": False}, {"axis": 1}])
def test_unsupported_option_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="bn: supports only the last axis, with scale and offset, and without renorm"):
        layer((4, 5, 3), **options)
