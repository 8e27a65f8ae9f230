from __future__ import annotations

import shlex

from payload.training.config import TrainConfig
from payload.training.recipes import RECIPES


def test_names_are_unique() -> None:
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)


def test_every_recipe_makes_a_valid_configuration() -> None:
    for recipe in RECIPES:
        data = ["--data-dir", "/data"] if recipe.needs_data_dir else []
        config = TrainConfig.from_argv(["--recipe", recipe.name, "--run-dir", "/run", *data])
        assert config.recipe == recipe
        assert recipe.batch_per_rank <= recipe.global_batch_limit


def test_every_recipe_states_command_hardware_time_and_accuracy() -> None:
    for recipe in RECIPES:
        assert recipe.name in shlex.split(recipe.command)
        assert recipe.hardware and recipe.expected_time and recipe.expected_accuracy
