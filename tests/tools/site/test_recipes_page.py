from __future__ import annotations

import re

import pytest

from cluster.runs.recipe_tables import settings_of, text
from payload.recipes import RECIPES, Recipe
from payload.settings import flag_of
from tools.site.recipes_page import page


def section(recipe: Recipe) -> str:
    """Return what the page says of a recipe."""
    return re.split(r"(?m)^## ", page())[1 + RECIPES.index(recipe)]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_has_its_command_its_figures_and_each_setting_that_it_changes(recipe: Recipe) -> None:
    shown = section(recipe)
    assert shown.startswith(f"{recipe.name}\n")
    assert f"| run | `{recipe.command}` |" in shown
    assert f"| accuracy | {recipe.expected_accuracy} |" in shown
    changed = {each.flag: text(each.value) for each in settings_of(recipe) if each.differs}
    assert dict(re.findall(r"(?m)^\| `(--[a-z0-9-]+)` \| `([^`]+)` \| `[^`]+` \|", shown)) == changed


@pytest.mark.parametrize("recipe", [each for each in RECIPES if each.variants], ids=lambda recipe: recipe.name)
def test_a_variant_has_what_it_sets_otherwise(recipe: Recipe) -> None:
    shown = section(recipe)
    for variant in recipe.variants:
        part = shown.split(f"### {recipe.name}, variant {variant.name}\n")[1].split("###")[0]
        assert f"| time | {variant.expected_time} |" in part
        for name, value in variant.overrides.items():
            assert f"| `{flag_of(name)}` | `{text(value)}` |" in part
