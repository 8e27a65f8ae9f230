from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from payload.settings import Settings
from tests.payload.training.export.test_model_spec import model_spec

pytestmark = pytest.mark.tensorflow


def state_of(settings: Settings, *, convertible: bool) -> Any:
    import keras

    from payload.training.optimizers.optimizer import make_optimizer
    from payload.training.state import TrainState

    inputs = keras.layers.Input((28, 30, 3))
    features = keras.layers.Flatten()(keras.layers.AveragePooling2D(4)(inputs))
    features = features if convertible else keras.ops.erfinv(features * 0.5)
    model = keras.Model(inputs, keras.layers.Dense(2)(features), name="small")
    return TrainState(model=model, optimizer=make_optimizer(settings, model))


def found_in(run_dir: Path) -> list[str]:
    return sorted(path.name for path in run_dir.rglob("model.*"))


@pytest.mark.parametrize(
    ("given", "forms"),
    [
        ({}, ()),
        ({"export": True}, ("model.keras", "saved_model")),
        ({"export_onnx": True}, ("model.keras", "saved_model", "model.onnx")),
    ],
)
def test_the_forms_are_those_of_the_settings(tmp_path: Path, given: dict[str, bool], forms: tuple[str, ...]) -> None:
    from payload.training.export.saved_model import export_at_end

    settings = Settings(**given)  # type: ignore[arg-type]  # names of switches
    done = export_at_end(tmp_path, model_spec(settings), state_of(settings, convertible=True), 3)
    assert (done.forms, done.onnx_refused) == (forms, None)
    assert ("model.onnx" in found_in(tmp_path)) == ("model.onnx" in forms)
    assert ("model.keras" in found_in(tmp_path)) == ("model.keras" in forms)


def test_what_cannot_be_had_as_onnx_is_exported_without_it_and_the_reason_kept(tmp_path: Path) -> None:
    from payload.training.export.saved_model import export_at_end

    settings = Settings(export_onnx=True)
    done = export_at_end(tmp_path, model_spec(settings), state_of(settings, convertible=False), 3)
    assert done.forms == ("model.keras", "saved_model")
    assert "no counterpart of Erfinv" in str(done.onnx_refused)
    assert found_in(tmp_path) == ["model.json", "model.keras"]
    assert json.loads((tmp_path / "export" / "model.json").read_text())["onnx"] is None
