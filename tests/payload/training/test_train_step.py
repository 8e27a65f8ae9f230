from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from payload.settings import SettingError, Settings

pytestmark = pytest.mark.tensorflow

CLASSES = 7
SLOTS = 6


@pytest.fixture(scope="module", autouse=True)
def _joined() -> Iterator[None]:
    from payload.training import distributed

    distributed.join()
    yield
    distributed.leave()


def test_unresolved_host_name_is_reported_before_gloo_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    from payload.training import distributed

    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")
    monkeypatch.setattr("socket.gethostname", lambda: "no-such-host.invalid")
    with pytest.raises(
        distributed.UnresolvedNameError, match=r"echo '127\.0\.1\.1 no-such-host\.invalid' >> /etc/hosts"
    ):
        distributed.join()


def batch(count: int = SLOTS, slots: int = SLOTS) -> tuple[Any, Any, Any]:
    """Return images, labels and weights; slots beyond `count` are unused, and their content must not matter."""
    drawn = np.random.default_rng(2)
    images = drawn.integers(0, 256, (slots, 8, 8, 1)).astype(np.uint8)
    labels = drawn.integers(0, CLASSES, slots).astype(np.int32)
    return images, labels, (np.arange(slots) < count).astype(np.float32)


def net(precision: str = "float32", *, normalized: bool = False) -> Any:
    import keras

    from payload.models.layers import weight_type
    from payload.models.normalization import BatchNormalization

    keras.utils.set_random_seed(1)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    norm = [BatchNormalization(name="bn")] if normalized else []
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(3, 3, name="conv"),
            *norm,
            keras.layers.Activation("tanh"),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES, dtype=weight_type(), name="fc"),
        ],
        name="net",
    )
    keras.config.set_dtype_policy(before)
    return model


def stepped(settings: Settings, model: Any, given: tuple[Any, Any, Any], times: int = 1) -> tuple[Any, Any]:
    """Take steps with the same batch; return the last sums, and all weights as one vector."""
    from payload.training.optimizers.optimizer import make_optimizer
    from payload.training.train_step import make_train_step

    step = make_train_step(model, make_optimizer(settings, model), settings)
    images, labels, weights = given
    for _ in range(times):
        sums = step(images, labels, weights, int(weights.sum()), 0.5, True, 4)
    return sums.numpy(), np.concatenate([np.ravel(values) for values in model.get_weights()])


@pytest.mark.parametrize("count", [SLOTS, 4], ids=["full", "partial"])
@pytest.mark.parametrize("normalized", [False, True], ids=["plain", "normalized"])
def test_step_matches_textbook_on_images_with_weight(count: int, normalized: bool) -> None:
    import tensorflow as tf

    given = batch(count)
    sums, ours = stepped(Settings(momentum=0.0), net(normalized=normalized), given)
    model = net(normalized=normalized)
    images, labels = (part[:count] for part in given[:2])
    with tf.GradientTape() as tape:
        logits = model(images.astype(np.float32) / 255, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_mean(losses)
    variables = [variable.value for variable in model.trainable_variables]
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.5 * gradient)
    assert ours == pytest.approx(np.concatenate([np.ravel(values) for values in model.get_weights()]), abs=2e-6)
    hits = float((np.argmax(logits, axis=1) == labels).sum())
    assert sums[:2] == pytest.approx([float(tf.reduce_sum(losses)), hits], rel=1e-5)
    assert sums[3:].tolist() == [1, 4]


@pytest.mark.parametrize(("parts", "count"), [(2, SLOTS), (4, 3)], ids=["full", "partial and uneven"])
def test_batch_in_parts_gives_the_same_gradients(parts: int, count: int) -> None:
    whole, in_parts = (Settings(accumulation_steps=steps) for steps in (1, parts))
    expected = stepped(whole, net("float64"), batch(count), times=3)
    found = stepped(in_parts, net("float64"), batch(count), times=3)
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    assert found[1] == pytest.approx(expected[1], abs=1e-12)


def test_normalized_batch_in_parts_updates_moments_once() -> None:
    whole, in_parts = net(normalized=True), net(normalized=True)
    stepped(Settings(), whole, batch())
    stepped(Settings(accumulation_steps=2), in_parts, batch())
    means = [np.asarray(model.get_layer("bn").moving_mean) for model in (whole, in_parts)]
    assert means[1] == pytest.approx(means[0], rel=1e-5)


def test_smoothed_labels_change_the_loss_and_not_the_hits() -> None:
    plain, _ = stepped(Settings(), net(), batch())
    smoothed, _ = stepped(Settings(label_smoothing=0.1), net(), batch())
    assert plain[0] != smoothed[0]
    assert plain[1:].tolist() == smoothed[1:].tolist()


def test_xla_computes_the_same() -> None:
    expected = stepped(Settings(accumulation_steps=2), net(normalized=True), batch(4), times=2)
    found = stepped(Settings(accumulation_steps=2, xla=True), net(normalized=True), batch(4), times=2)
    assert found[0] == pytest.approx(expected[0], rel=1e-4)
    assert found[1] == pytest.approx(expected[1], abs=1e-4)


@pytest.mark.parametrize(
    "settings",
    [Settings(precision="bfloat16"), Settings(precision="float16")],
)
def test_half_precision_is_close_to_full(settings: Settings) -> None:
    _, expected = stepped(Settings(), net(normalized=True), batch(), times=2)
    _, found = stepped(settings, net(f"mixed_{settings.precision}", normalized=True), batch(), times=2)
    assert found == pytest.approx(expected, abs=0.05)


def test_each_shape_is_traced_once_and_partial_batches_twice_with_normalization() -> None:
    from payload.training.optimizers.optimizer import make_optimizer
    from payload.training.train_step import make_train_step

    traces = []
    for normalized in (False, True):
        model = net(normalized=normalized)
        calls: list[int] = []
        real = model.call
        model.call = lambda *given, real=real, calls=calls, **options: calls.append(1) or real(*given, **options)
        settings = Settings()
        step = make_train_step(model, make_optimizer(settings, model), settings)
        for count in (SLOTS, SLOTS, 3, SLOTS, 2):
            step(*batch(count), count, 0.1 * count, False, 0)
        traces.append(len(calls))
    assert traces == [1, 2]


def test_moving_average_is_updated_in_step_and_used_in_evaluation() -> None:
    from payload.training.evaluation_step import make_evaluation_step
    from payload.training.optimizers.optimizer import make_optimizer
    from payload.training.train_step import make_train_step

    model = net(normalized=True)
    settings = Settings(ema_decay=0.9)
    optimizer = make_optimizer(settings, model)
    step, evaluate = make_train_step(model, optimizer, settings), make_evaluation_step(model)
    for _ in range(3):
        step(*batch(), SLOTS, 0.5, False, 0)
    newest = evaluate(*batch()).numpy()
    with optimizer.averaged():
        averaged = evaluate(*batch()).numpy()
    assert evaluate(*batch()).numpy().tolist() == newest.tolist()
    assert averaged[0] != newest[0]


def test_evaluation_counts_each_image_once_and_has_confusion_matrix() -> None:
    from payload.training.evaluation_step import make_evaluation_step

    model = net()
    images, labels, weights = batch(4)
    sums, confusion, seen_as, confidence = make_evaluation_step(model, confusion=True)(images, labels, weights)
    taken_for = np.argmax(model(images.astype(np.float32) / 255), axis=1)
    expected = np.zeros((CLASSES, CLASSES), np.int64)
    np.add.at(expected, (labels[:4], taken_for[:4]), 1)
    assert confusion.numpy().tolist() == expected.tolist()
    assert seen_as.numpy().tolist() == taken_for.tolist()
    logits = model(images.astype(np.float32) / 255).numpy()
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert confidence.numpy() == pytest.approx(shares.max(axis=1), rel=1e-4)
    assert sums.numpy()[1] == np.trace(expected)
    assert sums.dtype.name == "float64"
    assert make_evaluation_step(model)(images, labels, weights).numpy().tolist() == sums.numpy().tolist()


def test_xla_with_normalization_over_all_ranks_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    from payload.training import distributed
    from payload.training.train_step import make_train_step

    monkeypatch.setattr(distributed, "size", lambda: 2)
    with pytest.raises(SettingError, match="--xla: a normalization over all ranks cannot be compiled; use"):
        make_train_step(net(), None, Settings(xla=True, batch_norm="synchronized"))  # type: ignore[arg-type]


def test_compute_time_ends_with_the_last_gradient_and_excludes_the_allreduce(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import keras
    import tensorflow as tf

    from payload.training import distributed
    from payload.training.optimizers.optimizer import make_optimizer
    from payload.training.train_step import make_train_step

    def waiting(seconds: float, tensors: list[Any]) -> Any:
        return tf.numpy_function(lambda *_: time.sleep(seconds), tensors, [], stateful=True)

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def slow_backwards(values: Any) -> Any:
        def gradient(given: Any) -> Any:
            with tf.control_dependencies([waiting(0.2, [given])]):
                return tf.identity(given)

        return tf.identity(values), gradient

    def summed(tensors: list[Any]) -> list[Any]:
        with tf.control_dependencies([waiting(3.0, tensors)]):
            return [tf.identity(tensor) for tensor in tensors]

    monkeypatch.setattr(distributed, "size", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    monkeypatch.setattr(distributed, "sum_in_graph", summed)
    images, labels, weights = batch()
    layers = [keras.layers.Flatten(), keras.layers.Dense(8), keras.layers.Lambda(slow_backwards)]
    model = keras.Sequential([keras.Input(images.shape[1:]), *layers, keras.layers.Dense(CLASSES)])
    settings = Settings()
    step = make_train_step(model, make_optimizer(settings, model), settings)
    *rest, pass_s = step(images, labels, weights, len(labels), 0.1, False, 3, 0.25).numpy().tolist()
    assert rest[3:] == [0.0, 3.0, 0.0, 0.25], "stops, skipped records, and of each rank the step before"
    assert 0.2 <= pass_s < 3.0
