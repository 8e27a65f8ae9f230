"""Properties of every network: its weights, its work, and that a gradient reaches every weight."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from payload.models.registry import NETWORKS, Network, parameter_count
from payload.models.registry import network as named

pytestmark = pytest.mark.tensorflow

SLOW = ("resnet50", "resnet152", "vgg16", "inception-bn", "inception-v3")
GRIDS = {
    "googlenet": {
        "3a": (28, 28, 256),
        "3b": (28, 28, 480),
        "4a": (14, 14, 512),
        "4e": (14, 14, 832),
        "5b": (7, 7, 1024),
    },
    "inception-bn": {
        "3b": (28, 28, 320),
        "3c": (14, 14, 576),
        "4d": (14, 14, 608),
        "4e": (7, 7, 1056),
        "5b": (7, 7, 1024),
    },
    "inception-v3": {
        "5d": (35, 35, 288),
        "6a": (17, 17, 768),
        "6e": (17, 17, 768),
        "7a": (8, 8, 1280),
        "7c": (8, 8, 2048),
    },
}
"""Output shapes of some blocks, as published."""
WITH_DROPOUT = ("alexnet", "fashion-vgg", "googlenet", "inception-v3", "lstm", "vgg16")


def multiply_adds(model: Any) -> int:
    """Count multiply-adds: each weight of a kernel counts once for each position at which it is used."""
    import keras

    total = 0
    for layer in model._flatten_layers(include_self=False):
        if isinstance(layer, keras.layers.Conv2D):
            total += math.prod(layer.kernel.shape) * math.prod(layer.output.shape[1:3])
        elif isinstance(layer, keras.layers.Bidirectional):  # kernels for a step's input and the last step's output
            kernels = [weight for weight in layer.weights if len(weight.shape) == 2]
            steps = (layer.input[0] if isinstance(layer.input, list) else layer.input).shape[1]
            total += steps * sum(math.prod(kernel.shape) for kernel in kernels)
        elif isinstance(layer, keras.layers.Dense):
            total += math.prod(layer.kernel.shape)
    return total


@pytest.fixture(autouse=True)
def _forget_networks() -> Any:
    yield
    import keras

    keras.backend.clear_session()


@pytest.fixture
def no_random_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Initialize weights with zeros: drawing a hundred million random numbers takes longer than all else here."""
    import keras

    monkeypatch.setattr(keras.initializers.VarianceScaling, "__call__", keras.initializers.Zeros().__call__)


def networks(*slow: str) -> list[Any]:
    """Return all networks; the slow ones run only in `make test-all`."""
    marks = {True: [pytest.mark.full], False: []}
    return [pytest.param(each, id=each.name, marks=marks[each.name in slow]) for each in NETWORKS]


@pytest.mark.parametrize("network", networks("resnet152"))
def test_model_has_the_published_weights_operations_and_grids(network: Network, no_random_weights: None) -> None:
    model = network.build(network.image_shape, network.classes)
    assert parameter_count(model) == network.parameters
    assert model.output_shape == (None, network.classes)
    assert multiply_adds(model) == network.multiply_adds
    grids = GRIDS.get(network.name, {})
    assert {name: model.get_layer(f"{name}_concat").output.shape[1:] for name in grids} == grids


@pytest.mark.parametrize("network", networks(*SLOW))
def test_gradients_reach_all_weights_from_the_smallest_images(network: Network) -> None:
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    height, width = network.smallest_size, network.smallest_size + 5
    options: dict[str, Any] = {"dropout": 0.0} if network.name in WITH_DROPOUT else {}
    model = network.build((height, width, network.channels), 3, **options)
    images = tf.random.uniform((6, height, width, network.channels), seed=1)
    labels = tf.constant([0, 1, 2, 0, 1, 2])
    assert model.output_shape == (None, 3)
    variables = [variable.value for variable in model.trainable_variables]

    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
    gradients = tape.gradient(losses, variables)
    assert all(gradient is not None for gradient in gradients)
    assert bool(tf.math.is_finite(tf.linalg.global_norm(gradients)))


def test_resnet_strides_in_the_three_by_three_and_starts_its_blocks_as_identities(
    no_random_weights: None,
) -> None:
    from payload.models.resnet import resnet50

    model = resnet50((32, 32, 3), 10)
    assert model.get_layer("conv3_1_a").strides == (1, 1)
    assert model.get_layer("conv3_1_b").strides == (2, 2)
    assert not model.get_layer("conv2_1_c_bn").gamma.numpy().any()
    assert model.get_layer("conv2_1_b_bn").gamma.numpy().all()
    for zero_gamma in (False, True):
        small = named("resnet20").build((32, 32, 3), 10, zero_gamma=zero_gamma)
        gammas = [layer.gamma.numpy().any() for layer in small.layers if hasattr(layer, "gamma")]
        assert all(gammas) is not zero_gamma


@pytest.mark.parametrize(("name", "precision"), [("lenet", "bfloat16"), ("resnet20", "float16"), ("lenet", "float64")])
def test_layers_compute_in_chosen_precision_and_logits_in_precision_of_weights(
    name: str, precision: str, no_random_weights: None
) -> None:
    import keras

    network = named(name)
    size = network.smallest_size
    model = network.build((size, size, network.channels), 4, precision=precision)
    weights = "float64" if precision == "float64" else "float32"
    assert {variable.dtype for variable in model.trainable_variables} == {weights}
    assert model.layers[1].compute_dtype == precision
    assert model(np.zeros((1, size, size, network.channels), np.float32)).dtype == weights
    assert keras.config.dtype_policy().name == "float32"  # as before


def test_fashion_network_halves_size_twice_and_normalizes_input() -> None:
    from payload.models.fashion import MEAN, STANDARD_DEVIATION, fashion_vgg

    model = fashion_vgg((28, 28, 1), 10)
    assert model.get_layer("flatten").output.shape[1] == 7 * 7 * 256
    normalized = model.get_layer("normalize")(np.array([[[[MEAN]], [[MEAN + STANDARD_DEVIATION]]]], np.float32))
    assert normalized.numpy().ravel() == pytest.approx([0, 1], abs=1e-5)


def test_photos_are_standardized_by_color_and_gray_images_as_a_whole() -> None:
    import keras

    from payload.models.layers import standardized

    for channels, expected in ((3, (0.485, 0.456, 0.406)), (1, (0.449,))):
        inputs = keras.layers.Input((8, 8, channels))
        model = keras.Model(inputs, standardized(inputs))
        middle = np.broadcast_to(np.array(expected, np.float32), (1, 8, 8, channels))
        assert np.abs(model(middle).numpy()).max() < 1e-5
        assert model(middle + 0.2255).numpy().mean() == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("shape", [(16, 16, 1), (28, 40, 3)])
def test_lenet_accepts_any_sufficient_size(shape: tuple[int, int, int]) -> None:
    from payload.models.lenet import lenet

    assert lenet(shape, 7)(np.zeros((2, *shape), np.float32)).shape == (2, 7)


SHAPE = (29, 12, 1)


def sequences(lengths: tuple[int, ...], frames: int = SHAPE[0]) -> np.ndarray:
    drawn = np.random.default_rng(1).uniform(0.1, 0.9, (len(lengths), frames, *SHAPE[1:])).astype(np.float32)
    for number, length in enumerate(lengths):
        drawn[number, length:] = 0
    return drawn


def test_padding_of_a_sequence_changes_nothing() -> None:
    from payload.models.lstm import lstm

    model = lstm(SHAPE, 9)
    longer = lstm((40, *SHAPE[1:]), 9)
    longer.set_weights(model.get_weights())
    given = sequences((7, 20, 29))
    padded = np.concatenate([given, np.zeros((3, 11, *SHAPE[1:]), np.float32)], axis=1)
    assert longer(padded).numpy() == pytest.approx(model(given).numpy(), abs=1e-6)


def test_lstm_reads_every_frame_and_their_order() -> None:
    from payload.models.lstm import lstm

    model = lstm(SHAPE, 9)
    given = np.repeat(sequences((9,)), 11, axis=0)
    given[range(9), range(9)] += 0.3
    given[9, [3, 4]] = given[9, [4, 3]]
    *changed, expected = model(given).numpy()
    assert (np.abs(np.array(changed) - expected).max(axis=1) > 1e-6).all()


def test_sequence_without_a_frame_has_finite_logits() -> None:
    from payload.models.lstm import lstm

    assert np.isfinite(lstm(SHAPE, 9)(sequences((0, 5))).numpy()).all()
