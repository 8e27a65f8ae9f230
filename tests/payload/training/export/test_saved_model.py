"""Facts about exported networks: two of them, written and read again in one process, and once in a fresh one."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from payload.training.export.model_card import ModelCard

pytestmark = pytest.mark.tensorflow

CARD = ModelCard(
    recipe="digits",
    network="small",
    dataset="digits",
    labels=tuple("abcde"),
    size=(32, 32),
    channels=3,
    rectangular=False,
    margin=0.875,
    data_dir=None,
    settings={"epochs": 3},
    steps=7,
    averaged=False,
    weights_sha256="00",
    versions={"keras": "3"},
)
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
    """Hold what was exported, and what it must give."""

    folder: Path
    images: Any
    expected: Any


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Export a small network for images of any size, whose normalisations have seen something."""
    import keras
    import tensorflow as tf

    from payload.models.layers import classifier, normalized_convolution
    from payload.training.export.saved_model import write_export

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


def test_the_directory_holds_the_two_forms_and_their_card_and_nothing_of_before(written: Written) -> None:
    found = sorted(path.name for path in (written.folder / "export").iterdir())
    assert found == ["model.json", "model.keras", "saved_model"]
    assert [path.name for path in written.folder.iterdir() if path.name.startswith(".")] == []
    assert json.loads((written.folder / "export" / "model.json").read_text())["labels"] == list("abcde")


def test_where_this_project_is_not_both_forms_give_what_the_network_gave(written: Written) -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], cwd=written.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    of_keras, of_served, classes = done.stdout.split()
    assert max(float(of_keras), float(of_served)) < 1e-5
    assert classes == "True"


@pytest.mark.parametrize("name", ["", "export", "export/model.keras", "export/saved_model"])
def test_a_run_an_export_and_each_form_of_it_can_be_loaded(written: Written, name: str) -> None:
    from payload.training.export.classifier import load

    classifier = load(written.folder / name)
    assert (classifier.labels, classifier.size, classifier.channels) == (tuple("abcde"), (32, 32), 3)
    assert classifier.card == CARD
    assert classifier.probabilities(written.images) == pytest.approx(written.expected, abs=1e-5)


def test_without_its_card_a_network_of_any_size_must_be_told_one(written: Written, tmp_path: Path) -> None:
    from payload.training.export.classifier import load
    from payload.training.export.model_card import ModelError

    alone = tmp_path / "model.keras"
    alone.write_bytes((written.folder / "export" / "model.keras").read_bytes())
    with pytest.raises(ModelError, match="give --size"):
        load(alone)
    assert load(alone, (40, 40)).size == (40, 40)
    assert load(alone, (40, 40)).labels == tuple("01234")


def test_the_network_within_gives_logits_of_pixels(written: Written) -> None:
    import tensorflow as tf

    from payload.training.export.classifier import load

    network = load(written.folder).network
    logits = network(tf.cast(written.images, tf.float32) / 255, training=False)
    assert tf.nn.softmax(logits).numpy() == pytest.approx(written.expected, abs=1e-5)


def test_half_precision_is_kept_and_its_probabilities_are_float32(tmp_path: Path) -> None:
    from payload.models.registry import network
    from payload.training.export.classifier import load
    from payload.training.export.saved_model import write_export

    model = network("lenet").build((28, 28, 1), 5, precision="bfloat16")
    write_export(tmp_path / "export", model, dataclasses.replace(CARD, size=(28, 28), channels=1))
    found = load(tmp_path)
    assert {str(layer.compute_dtype) for layer in found.network.layers if layer.name == "conv1"} == {"bfloat16"}
    assert found.probabilities(np.zeros((2, 28, 28, 1), np.uint8)).sum(axis=1) == pytest.approx([1, 1], abs=1e-6)


def test_damaged_and_foreign_files_are_errors_that_name_them(written: Written, tmp_path: Path) -> None:
    import keras

    from payload.training.export.classifier import load
    from payload.training.export.model_card import ModelError

    (tmp_path / "cut.keras").write_bytes((written.folder / "export" / "model.keras").read_bytes()[:5000])
    (tmp_path / "saved_model").mkdir()
    (tmp_path / "saved_model" / "saved_model.pb").write_bytes(b"no")
    keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)]).save(tmp_path / "other.keras")
    for name, says in (("cut.keras", "cannot be loaded"), ("saved_model", "cannot be loaded"), ("other", "no export")):
        path = tmp_path / (name if "." in name or name == "saved_model" else f"{name}.keras")
        with pytest.raises(ModelError, match=f"{path.name}: .*{says}"):
            load(path)


def test_where_it_cannot_be_written_nothing_is_left_and_the_old_one_stays(written: Written, tmp_path: Path) -> None:
    from agent.files.atomic_write import StorageError
    from payload.models.registry import network
    from payload.training.export.saved_model import write_export

    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        write_export(tmp_path / "file" / "export", network("lenet").build((28, 28, 1), 5), CARD)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
