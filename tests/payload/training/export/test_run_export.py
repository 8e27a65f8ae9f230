from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from payload.settings import Settings
from tests.payload.training.export.test_settings_file import model_spec

pytestmark = pytest.mark.tensorflow


def unconvertible(settings: Settings) -> Any:
    import keras

    from payload.training.optimizers.optimizer import make_optimizer
    from payload.training.train_state import TrainState

    inputs = keras.layers.Input((28, 30, 3))
    features = keras.ops.erfinv(keras.layers.Flatten()(keras.layers.AveragePooling2D(4)(inputs)) * 0.5)
    model = keras.Model(inputs, keras.layers.Dense(2)(features), name="small")
    return TrainState(model=model, optimizer=make_optimizer(settings, model))


def test_unsupported_onnx_export_is_skipped_with_reason(tmp_path: Path) -> None:
    from payload.training.export.export_network import export_at_end

    settings = Settings(export_onnx=True)
    done = export_at_end(tmp_path, model_spec(settings), unconvertible(settings), 3)
    assert done.forms == ("model.keras", "saved_model")
    assert "ONNX does not have: Erfinv" in str(done.onnx_refused)
    assert sorted(path.name for path in tmp_path.rglob("model.*")) == ["model.json", "model.keras"]
    assert json.loads((tmp_path / "export" / "model.json").read_text())["onnx"] is None
