"""Exported networks, written and loaded again in one process, and loaded once in a new process."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.payload.training.export import test_model_card

pytestmark = pytest.mark.tensorflow

CARD = dataclasses.replace(test_model_card.CARD, network="small", labels=tuple("abcde"), size=(32, 32), channels=3)
FRESH = """
import sys
sys.modules["payload"] = None  # as where this project is not installed
import keras, numpy, tensorflow
images = numpy.load("images.npy")
print(numpy.abs(keras.saving.load_model("export/model.keras")(images) - numpy.load("expected.npy")).max())
served = tensorflow.saved_model.load("export/saved_model").signatures["serving_default"](images=images)
print(numpy.abs(served["probabilities"] - numpy.load("expected.npy")).max())
print(served["classes"].numpy().tolist() == numpy.load("expected.npy").argmax(axis=1).tolist())
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """An exported network, with images and the expected outputs."""

    folder: Path
    images: Any
    expected: Any


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Export a small network for images of any size, with non-trivial normalization moments."""
    import keras
    import tensorflow as tf

    from payload.models.layers import classifier, normalized_convolution
    from payload.training.export.export_network import write_export

    inputs = keras.layers.Input((None, None, 3))
    features = keras.layers.GlobalAveragePooling2D()(normalized_convolution(inputs, 8, 3, padding=1, name="conv1"))
    model = keras.Model(inputs, classifier(features, 5, name="fc"), name="small")
    random = np.random.default_rng(0)
    for variable in model.non_trainable_variables:
        variable.assign(random.uniform(0.5, 1.5, variable.shape))
    folder = tmp_path_factory.mktemp("product")
    (folder / "export").mkdir()
    (folder / "export" / "left-over").touch()
    write_export(folder / "export", model, CARD)
    images = random.integers(0, 256, (3, 32, 32, 3), np.uint8)
    expected = tf.nn.softmax(model(tf.cast(images, tf.float32) / 255, training=False)).numpy()
    np.save(folder / "images.npy", images)
    np.save(folder / "expected.npy", expected)
    return Written(folder=folder, images=images, expected=expected)


def test_directory_has_two_formats_and_card_and_nothing_older(written: Written) -> None:
    found = sorted(path.name for path in (written.folder / "export").iterdir())
    assert found == ["model.json", "model.keras", "saved_model"]
    assert [path.name for path in written.folder.iterdir() if path.name.startswith(".")] == []
    assert json.loads((written.folder / "export" / "model.json").read_text())["labels"] == list("abcde")


def test_exports_work_without_this_project(written: Written) -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], cwd=written.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    of_keras, of_served, classes = done.stdout.split()
    assert max(float(of_keras), float(of_served)) < 1e-5
    assert classes == "True"


@pytest.mark.parametrize("name", ["", "export", "export/model.keras", "export/saved_model"])
def test_run_export_and_each_of_its_forms_can_be_loaded(written: Written, name: str) -> None:
    from payload.training.export.classifier import load

    classifier = load(written.folder / name, trust_model=name.endswith("saved_model"))
    assert (classifier.labels, classifier.size, classifier.channels) == (tuple("abcde"), (32, 32), 3)
    assert classifier.card == CARD
    assert classifier.probabilities(written.images) == pytest.approx(written.expected, abs=1e-5)


def test_without_a_model_card_a_network_of_any_size_needs_a_size(written: Written, tmp_path: Path) -> None:
    from payload.training.export.classifier import load
    from payload.training.export.model_card import ModelError

    alone = tmp_path / "model.keras"
    alone.write_bytes((written.folder / "export" / "model.keras").read_bytes())
    with pytest.raises(ModelError, match="set --size"):
        load(alone)
    assert load(alone, (40, 40)).size == (40, 40)
    assert load(alone, (40, 40)).labels == tuple("01234")


def test_contained_network_computes_logits_from_pixels(written: Written) -> None:
    import tensorflow as tf

    from payload.training.export.classifier import load

    network = load(written.folder).network
    logits = network(tf.cast(written.images, tf.float32) / 255, training=False)
    assert tf.nn.softmax(logits).numpy() == pytest.approx(written.expected, abs=1e-5)


def test_half_precision_is_kept_and_its_probabilities_are_float32(tmp_path: Path) -> None:
    from payload.models.registry import network
    from payload.training.export.classifier import load
    from payload.training.export.export_network import write_export

    model = network("lenet").build((28, 28, 1), 5, precision="bfloat16")
    write_export(tmp_path / "export", model, dataclasses.replace(CARD, size=(28, 28), channels=1))
    found = load(tmp_path)
    assert {str(layer.compute_dtype) for layer in found.network.layers if layer.name == "conv1"} == {"bfloat16"}
    assert found.probabilities(np.zeros((2, 28, 28, 1), np.uint8)).sum(axis=1) == pytest.approx([1, 1], abs=1e-6)


def test_damaged_and_foreign_files_are_reported_by_name(written: Written, tmp_path: Path) -> None:
    import keras

    from payload.training.export.classifier import load
    from payload.training.export.model_card import ModelError

    (tmp_path / "cut.keras").write_bytes((written.folder / "export" / "model.keras").read_bytes()[:5000])
    (tmp_path / "saved_model").mkdir()
    (tmp_path / "saved_model" / "saved_model.pb").write_bytes(b"no")
    keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)]).save(tmp_path / "other.keras")
    for name, says in (("cut.keras", "cannot be loaded"), ("saved_model", "cannot be loaded"), ("other", "is not an")):
        path = tmp_path / (name if "." in name or name == "saved_model" else f"{name}.keras")
        with pytest.raises(ModelError, match=f"{path.name}: .*{says}"):
            load(path, trust_model=True)


def test_saved_model_that_writes_a_file_is_loaded_only_if_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the signature of an export, and writes the file when it is loaded and when it is called."""
    import tensorflow as tf
    from PIL import Image

    from payload.predict import main, predict
    from payload.training.export.model_card import ModelError

    written = tmp_path / "bash_profile"

    class Hostile(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
        @tf.function(input_signature=[tf.TensorSpec((None, 4, 4, 3), tf.uint8, name="images")])  # type: ignore[untyped-decorator]
        def serve(self, images: Any) -> dict[str, Any]:
            with tf.control_dependencies([tf.io.write_file(str(written), "echo hostile")]):
                return {"probabilities": tf.ones((tf.shape(images)[0], 2)) / 2}

    module, export = Hostile(), tmp_path / "run" / "export"
    signatures = {"serving_default": module.serve}
    for folder in (export / "saved_model", export / "model.keras"):
        tf.saved_model.save(module, str(folder), signatures=signatures)
    Image.new("RGB", (4, 4)).save(tmp_path / "image.png")
    for place in (export.parent, export, export / "saved_model", export / "model.keras"):
        assert main(["--model", str(place), str(tmp_path / "image.png")]) == 1
        said = capsys.readouterr().err
        assert (said.count("\n"), "--trust-model" in said) == (1, True)
        with pytest.raises(ModelError):
            predict(place, np.zeros((1, 4, 4, 3), np.uint8))
    assert not written.exists()
    assert main(["--run-dir", str(export.parent), str(tmp_path / "image.png"), "--trust-model"]) == 0
    assert written.exists()


def test_keras_file_with_a_foreign_class_is_not_loaded(written: Written, tmp_path: Path) -> None:
    """Keras's TFSMLayer loads a SavedModel, and StringLookup reads a file."""
    import zipfile

    from payload.training.export.classifier import load
    from payload.training.export.model_card import ModelError

    foreign = [
        {"module": "keras.layers", "class_name": "TFSMLayer", "config": {"filepath": "saved_model"}},
        {"module": "keras.layers", "class_name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}},
        {"module": "builtins", "class_name": "function", "config": "get_file"},
        {"module": "os", "class_name": "Dense", "config": {}},
        {"class_name": "__lambda__", "config": {"value": "code"}},
    ]
    for number, layer in enumerate(foreign):
        path = tmp_path / f"{number}.keras"
        with zipfile.ZipFile(written.folder / "export" / "model.keras") as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                content = old.read(name)
                if name == "config.json":
                    config = json.loads(content)
                    config["config"]["layers"][0]["config"]["activation"] = layer
                    content = json.dumps(config).encode()
                new.writestr(name, content)
        with pytest.raises(ModelError, match=r"not loaded, because it contains classes that are in no network"):
            load(path)


def test_keras_file_with_another_layer_of_keras_is_loaded_if_trusted(tmp_path: Path) -> None:
    import keras

    from payload.training.export.classifier import load
    from payload.training.export.model_card import ModelError
    from payload.training.export.serving_model import serving_model

    layers = (keras.layers.LayerNormalization(), keras.layers.Flatten(), keras.layers.Dense(5))
    model = serving_model(keras.Sequential((keras.Input((32, 32, 3)), *layers)))
    model.save(tmp_path / "own.keras")
    with pytest.raises(ModelError, match=r"LayerNormalization; if you trust the program that wrote it"):
        load(tmp_path / "own.keras")
    assert load(tmp_path / "own.keras", trust_model=True).size == (32, 32)


def test_each_network_has_only_classes_that_are_loaded() -> None:
    import keras

    from payload.models.registry import NETWORKS
    from payload.training.export.classifier import KERAS_CLASSES, _classes
    from payload.training.export.serving_model import serving_model

    found = set()
    for each in NETWORKS:
        if each.name not in ("alexnet", "resnet152", "vgg16"):  # large, with the same layers as others
            width = each.image_width or each.smallest_size
            height = each.image_size if each.image_width else each.smallest_size
            model = serving_model(each.build((height, width, each.channels), 5, precision="bfloat16"))
            found |= set(_classes(json.loads(json.dumps(keras.saving.serialize_keras_object(model)))))
    assert found == KERAS_CLASSES


def test_failed_export_leaves_nothing_and_keeps_the_old_one(written: Written, tmp_path: Path) -> None:
    from agent.files.atomic_write import StorageError
    from payload.models.registry import network
    from payload.training.export.export_network import write_export

    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        write_export(tmp_path / "file" / "export", network("lenet").build((28, 28, 1), 5), CARD)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
