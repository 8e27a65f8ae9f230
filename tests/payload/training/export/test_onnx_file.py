"""model.onnx of every network in the registry, with weights that distinguish images."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from payload.models.registry import NETWORKS, Network
from payload.training.export.model_card import ModelCard, ModelError
from tests.payload.training.export import test_model_card

ROOT = Path(__file__).parents[4]
CLASSES = 5
CARD = dataclasses.replace(
    test_model_card.CARD, network="small", labels=("a", "b", "Ünïcode", "d", "e"), size=(32, 32), channels=3
)
WITHOUT_TENSORFLOW = """
import sys
from pathlib import Path
for name in ("tensorflow", "keras", "onnx", "tf2onnx", "horovod"):
    sys.modules[name] = None  # as where it is not installed
import numpy
from payload.predict import predict, predict_files
print(numpy.abs(predict(Path("export/model.onnx"), numpy.load("images.npy")) - numpy.load("expected.npy")).max())
print(predict_files(Path("export/model.onnx"), [Path("seven.png")], top=1)[0].classes[0].label)
try:
    predict(Path("export"), numpy.load("images.npy"))
except Exception as error:
    print(error)
"""

pytestmark = pytest.mark.tensorflow


def card(network: Network, size: tuple[int, int]) -> ModelCard:
    return dataclasses.replace(CARD, network=network.name, size=size, channels=network.channels)


def built(network: Network, size: tuple[int, int], precision: str = "float32") -> Any:
    """Build a network with non-trivial weights, so that its answers depend on every layer."""
    import keras

    keras.utils.set_random_seed(0)
    shape = (None, None) if network.any_size else size
    options = {"zero_gamma": False} if network.zero_gamma else {}
    model = network.build((*shape, network.channels), CLASSES, precision=precision, **options)
    random = np.random.default_rng(0)
    for variable in model.variables:
        if variable.path.endswith(("moving_mean", "beta", "bias")):
            variable.assign(random.uniform(-0.1, 0.1, variable.shape))
        elif variable.path.endswith(("moving_variance", "gamma")):
            variable.assign(random.uniform(0.8, 1.25, variable.shape))
    from payload.training.export.onnx_file import trial_images

    last, pixels = model.layers[-1], trial_images(size, network.channels).astype("float32") / 255
    last.kernel.assign(random.normal(0, 1, last.kernel.shape))
    last.bias.assign(np.zeros(CLASSES))
    logits = np.asarray(model(pixels, training=False), np.float32)
    factor = 2 / logits.std(axis=0).max()
    last.kernel.assign(np.asarray(last.kernel) * factor)
    last.bias.assign(-logits.mean(axis=0) * factor)
    return model


QUICK = ("lstm",)


# ResNet-152 has the same blocks as ResNet-50, three times as many.
@pytest.mark.parametrize(
    "network",
    [
        pytest.param(each, id=each.name, marks=[] if each.name in QUICK else [pytest.mark.full])
        for each in NETWORKS
        if each.name != "resnet152"
    ],
)
def test_each_network_gives_same_result_in_onnx_and_keras(tmp_path: Path, network: Network) -> None:
    from payload.training.export.classifier import load
    from payload.training.export.onnx_file import trial_images, write_onnx
    from payload.training.export.serving_model import serving_model

    small = max(network.smallest_size, 32) if network.channels == 3 else network.image_size
    size = (small, small if network.channels == 3 else network.image_shape[1])
    model = built(network, size)
    written = write_onnx(tmp_path / "model.onnx", model, card(network, size))
    assert written.bytes == (tmp_path / "model.onnx").stat().st_size
    images = trial_images(size, network.channels)
    expected = np.asarray(serving_model(model)(images, training=False))
    assert np.ptp(expected, axis=0).max() > 0.1, "the images are told apart"
    found = load(tmp_path / "model.onnx")
    assert found.probabilities(images) == pytest.approx(expected, abs=1e-5, rel=1e-3)
    assert (found.labels, found.size, found.channels) == (CARD.labels, size, network.channels)
    assert written.largest_difference <= 1e-4


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export LeNet in all forms, with images and the expected outputs."""
    from PIL import Image

    from payload.data.image_files import read_images
    from payload.models.registry import network
    from payload.training.export.export_network import write_export
    from payload.training.export.serving_model import serving_model

    folder = tmp_path_factory.mktemp("exported")
    lenet = network("lenet")
    model = built(lenet, (28, 28))
    returned = write_export(folder / "export", model, card(lenet, (28, 28)), onnx=True)
    assert returned.onnx is not None
    images = np.random.default_rng(1).integers(0, 256, (6, 28, 28, 1), np.uint8)
    np.save(folder / "images.npy", images)
    np.save(folder / "expected.npy", np.asarray(serving_model(model)(images, training=False)))
    Image.fromarray(images[0, :, :, 0]).save(folder / "seven.png")
    cropped = read_images([folder / "seven.png"], size=(28, 28), channels=1, fraction=CARD.margin)
    np.save(folder / "expected_of_file.npy", np.asarray(serving_model(model)(cropped, training=False)))
    return folder


def test_export_contains_three_formats_and_a_card_that_lists_them(exported: Path) -> None:
    from payload.training.export.model_card import read_card

    assert sorted(path.name for path in (exported / "export").iterdir()) == [
        *("model.json", "model.keras", "model.onnx", "saved_model"),
    ]
    found = read_card(exported / "export")
    assert found is not None
    assert found.onnx is not None
    assert (found.onnx.opset, found.onnx.bytes) == (18, (exported / "export" / "model.onnx").stat().st_size)
    assert set(found.onnx.versions) == {"tf2onnx", "onnx", "onnxruntime", "keras"}


def test_all_formats_accept_same_images_and_have_same_classes(exported: Path) -> None:
    from payload.training.export.classifier import load

    images, expected = np.load(exported / "images.npy"), np.load(exported / "expected.npy")
    for form in ("model.keras", "saved_model", "model.onnx"):
        found = load(exported / "export" / form, trust_model=form == "saved_model")
        assert (found.labels, found.size, found.channels) == (CARD.labels, (28, 28), 1)
        assert found.probabilities(images) == pytest.approx(expected, abs=1e-5, rel=1e-3)


def test_onnx_file_contains_names_of_classes_and_axes(exported: Path) -> None:
    from payload.training.export.onnx_file import session

    running = session(exported / "export" / "model.onnx")
    assert json.loads(running.get_modelmeta().custom_metadata_map["labels"]) == list(CARD.labels)
    (images,) = running.get_inputs()
    assert (images.name, images.type, images.shape) == ("images", "tensor(uint8)", ["N", 28, 28, 1])
    outputs = {each.name: (each.type, each.shape) for each in running.get_outputs()}
    assert outputs == {
        "probabilities": ("tensor(float)", ["N", CLASSES]),
        "classes": ("tensor(int64)", ["N"]),
    }
    given = {"images": np.load(exported / "images.npy")}
    assert running.run(["classes"], given)[0].tolist() == np.load(exported / "expected.npy").argmax(axis=1).tolist()


def test_onnx_file_runs_without_tensorflow_and_onnx_packages(exported: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW], cwd=exported, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    difference, label, refusal = done.stdout.splitlines()
    assert float(difference) < 1e-5
    assert label == CARD.labels[int(np.load(exported / "expected_of_file.npy")[0].argmax())]
    assert "needs keras, which is not installed in this Python; give --model export/model.onnx" in refusal


def test_images_of_wrong_type_or_shape_are_rejected_by_name(exported: Path) -> None:
    from payload.predict import predict

    model = exported / "export" / "model.onnx"
    with pytest.raises(ModelError, match=r"images of float64 \[2, 28, 28, 1\]: must be uint8 \[N, height, width, 1\]"):
        predict(model, np.zeros((2, 28, 28, 1)))  # type: ignore[arg-type]  # what a caller may pass all the same
    with pytest.raises(ModelError, match=r"images of 30 x 28: .* takes 28 x 28"):
        predict(model, np.zeros((2, 30, 28, 1), np.uint8))


def test_half_precision_is_exported_in_float32_with_the_same_weights(tmp_path: Path) -> None:
    from payload.models.registry import network
    from payload.training.export.classifier import load
    from payload.training.export.onnx_file import trial_images, write_onnx
    from payload.training.export.serving_model import serving_model

    known = network("lenet")
    size = known.image_shape[:2]
    half, full = built(known, size, "bfloat16"), built(known, size)
    full.set_weights(half.get_weights())
    write_onnx(tmp_path / "model.onnx", half, card(known, size))
    images = trial_images(size, known.channels)
    expected = np.asarray(serving_model(full)(images, training=False))
    assert load(tmp_path / "model.onnx").probabilities(images) == pytest.approx(expected, abs=1e-5, rel=1e-3)


def test_unsupported_operation_is_rejected_and_nothing_written(tmp_path: Path) -> None:
    import keras

    from payload.training.export.export_network import write_export
    from payload.training.export.onnx_conversion import OnnxError

    inputs = keras.layers.Input((4, 4, 1))
    features = keras.ops.erfinv(keras.layers.Flatten()(inputs) * 0.5)
    model = keras.Model(inputs, keras.layers.Dense(CLASSES)(features), name="small")
    with pytest.raises(
        OnnxError, match="small uses operations of TensorFlow that ONNX does not have: Erfinv"
    ) as refused:
        write_export(tmp_path / "export", model, dataclasses.replace(CARD, size=(4, 4), channels=1), onnx=True)
    assert refused.value.operations == ("Erfinv",)
    assert list(tmp_path.iterdir()) == []


def test_file_that_differs_from_keras_is_rejected_with_both_values(tmp_path: Path) -> None:
    from payload.models.registry import network
    from payload.training.export.onnx_conversion import OnnxError
    from payload.training.export.onnx_file import largest_difference, write_onnx
    from payload.training.export.serving_model import serving_model

    lenet = network("lenet")
    model = built(lenet, (28, 28))
    write_onnx(tmp_path / "model.onnx", model, card(lenet, (28, 28)))
    bias = model.layers[-1].bias
    bias.assign(np.asarray(bias) + np.array([0.05, 0, 0, 0, 0]))
    with pytest.raises(OnnxError, match=r"model\.onnx gives 0\.\d+ where Keras gives 0\.\d+, for class"):
        largest_difference(tmp_path / "model.onnx", serving_model(model), (28, 28))


def test_missing_packages_are_reported_with_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from payload.training.export import onnx_conversion

    locked = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["node"]
    assert all(requirement in locked for requirement in onnx_conversion.REQUIREMENTS)
    onnx_conversion.require_converter()
    monkeypatch.setattr(onnx_conversion, "PACKAGES", ("json", "no_such_one", "no_such_other"))
    command = r"pip install tf2onnx==1\.17\.0 'onnx>=1\.19,<2' 'onnxruntime>=1\.23,<2'"
    with pytest.raises(onnx_conversion.OnnxError, match=f"no_such_one, no_such_other; .*{command}"):
        onnx_conversion.require_converter()


def test_damaged_or_foreign_file_is_reported_by_name(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    from payload.training.export.classifier import load

    (tmp_path / "cut.onnx").write_bytes(b"no model")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "other", value[:1], value[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "other.onnx"
    )
    for name, says in (("cut.onnx", "cannot be loaded"), ("other.onnx", "is not an export of deepcdk")):
        with pytest.raises(ModelError, match=f"{name}: {says}"):
            load(tmp_path / name)
