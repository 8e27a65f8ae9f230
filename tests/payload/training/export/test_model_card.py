from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from payload.training.export.model_card import ModelCard, ModelError, OnnxFile, locate, read_card

CARD = ModelCard(
    recipe="digits",
    network="lenet",
    dataset="digits",
    labels=("0", "1"),
    size=(28, 28),
    channels=1,
    rectangular=False,
    margin=0.875,
    data_dir=None,
    settings={"epochs": 3},
    steps=3,
    averaged=True,
    weights_sha256="ab",
    versions={"keras": "3"},
)


def test_model_card_is_read_as_written(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps(dataclasses.asdict(CARD)))
    assert read_card(tmp_path) == CARD
    assert read_card(tmp_path / "absent") is None
    onnx = OnnxFile(opset=18, bytes=3, largest_difference=1e-6, versions={"onnx": "1"})
    (tmp_path / "model.json").write_text(json.dumps(dataclasses.asdict(dataclasses.replace(CARD, onnx=onnx))))
    assert read_card(tmp_path) == dataclasses.replace(CARD, onnx=onnx)


def test_card_written_before_onnx_support_is_read(tmp_path: Path) -> None:
    old = {name: value for name, value in dataclasses.asdict(CARD).items() if name != "onnx"}
    (tmp_path / "model.json").write_text(json.dumps(old))
    assert read_card(tmp_path) == CARD


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ""),
        ("{}", "missing or unknown fields; export the network again"),
        ('{"labels": 3}', "missing or unknown fields"),
        ("[1]", "missing or unknown fields"),
        ('{"labels": [], "size": [28]}', "size must be two whole numbers"),
        ('{"labels": [], "size": ["a", 28]}', "size must be two whole numbers"),
    ],
)
def test_damaged_card_is_reported_by_name(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelError, match=rf"model\.json: is not the description of a model: {says}"):
        read_card(tmp_path)


def test_each_way_to_name_a_model_finds_it_and_its_folder(tmp_path: Path) -> None:
    export = tmp_path / "run" / "export"
    (export / "saved_model").mkdir(parents=True)
    (export / "saved_model" / "saved_model.pb").touch()
    assert locate(tmp_path / "run") == (export / "saved_model", export)
    (export / "model.onnx").touch()
    assert locate(tmp_path / "run") == (export / "model.onnx", export)
    (export / "model.keras").touch()
    for given in (tmp_path / "run", export, export / "model.keras"):
        assert locate(given) == (export / "model.keras", export)
    assert locate(export / "saved_model") == (export / "saved_model", export)


def test_directory_named_like_a_file_of_keras_is_not_taken_for_one(tmp_path: Path) -> None:
    """Keras would load a SavedModel in it."""
    (tmp_path / "model.keras").mkdir()
    (tmp_path / "model.keras" / "saved_model.pb").touch()
    with pytest.raises(ModelError, match="contains no exported model"):
        locate(tmp_path)


def test_onnx_file_is_found_by_name_or_as_only_format(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    for given in (tmp_path, tmp_path / "model.onnx"):
        assert locate(given) == (tmp_path / "model.onnx", tmp_path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("absent", "no such file or directory"),
        ("notes.txt", r"is not a model; pass a \.keras file, an \.onnx file or a SavedModel"),
        ("empty", "python -m payload.export --run-dir"),
    ],
)
def test_invalid_model_is_an_error_with_a_fix(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=says):
        locate(tmp_path / name)
