from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from payload.recipes import RECIPES, Recipe
from payload.settings import Settings
from payload.training.export.settings_file import ModelSpec, ModelSpecError, read_model_spec, write_model_spec


def model_spec(settings: Settings) -> ModelSpec:
    return ModelSpec(
        recipe="r",
        variant=None,
        data_dir="s3://bucket/data",
        labels=("a", "b"),
        input_shape=(None, None, 3),
        test_size=(28, 30),
        rectangular=True,
        margin=0.875,
        settings=settings,
    )


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_settings_file_is_read_as_written(tmp_path: Path, recipe: Recipe) -> None:
    write_model_spec(tmp_path, model_spec(recipe.settings))
    assert read_model_spec(tmp_path) == model_spec(recipe.settings)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"labels": None}, r"settings\.json: these are not the settings of a run: a value"),
        ({"settings": {"epochs": "ten"}}, r"settings\.json: a value has the wrong type; use the version"),
        ({"settings": ["epochs"]}, r"settings\.json: a value has the wrong type; use the version"),
        ({"settings": {"color": "blue"}}, r"settings\.json: .* does not have the settings color; use the version"),
        ({"color": "blue"}, r"settings\.json: these are not the settings of a run: 'color' is unknown; fetch"),
        (
            {"settings": {"epochs": 0}},
            r"settings\.json: --epochs 0: must be 1 to 100000; use the version of deepcdk that",
        ),
    ],
)
def test_damaged_settings_file_is_reported(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    write_model_spec(tmp_path, model_spec(Settings()))
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ModelSpecError, match=says):
        read_model_spec(tmp_path)
