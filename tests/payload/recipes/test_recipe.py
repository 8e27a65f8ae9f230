from __future__ import annotations

import shlex

import pytest

from payload.recipes import RECIPES, Recipe
from payload.recipes.train_config import TrainConfig


def test_names_are_unique() -> None:
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_makes_a_valid_configuration(recipe: Recipe) -> None:
    data = ["--data-dir", "/data"] if "--data-dir" in recipe.command else []
    for ranks in (1, 8, 64, 128):
        config = TrainConfig.from_argv(["--recipe", recipe.name, "--run-dir", "/run", *data], ranks=ranks)
        assert config.recipe is recipe
        assert config.variant is recipe.variant_for(ranks)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_ranks_accept_command_of_every_recipe(recipe: Recipe) -> None:
    words = shlex.split(recipe.command)
    assert words[:2] == ["fab", "train"]
    given = words[words.index("--") + 1 :] if "--" in words else []
    for flag in ("--recipe", "--data-dir"):
        if flag in words:
            given = [flag, words[words.index(flag) + 1], *given]
    assert TrainConfig.from_argv(["--run-dir", "/run", *given]).recipe is recipe


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_states_hardware_time_accuracy_and_where_they_come_from(recipe: Recipe) -> None:
    assert recipe.summary and recipe.hardware and recipe.expected_time and recipe.expected_accuracy
    assert (recipe.evidence == "cited") == bool(recipe.source)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_variants_are_ordered_by_ranks_with_unique_names(recipe: Recipe) -> None:
    ranks = [variant.ranks for variant in recipe.variants]
    assert ranks == sorted(set(ranks))
    assert len({variant.name for variant in recipe.variants}) == len(ranks)
