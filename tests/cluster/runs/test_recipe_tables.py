"""The output of `fab recipes`."""

from __future__ import annotations

import dataclasses
import json

import pytest

from cluster.errors import UsageError
from cluster.runs.recipe_tables import document, recipe_named, settings_of, summary_table, tables, text, variant_named
from payload.recipes import RECIPES, Recipe
from payload.recipes.train_config import TrainConfig
from payload.settings import Settings

DIGITS, FAST = recipe_named("digits"), recipe_named("imagenet-fast")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_each_recipe_shows_command_hardware_time_accuracy_and_source(recipe: Recipe) -> None:
    table = summary_table(recipe)
    facts = {row[0]: row[1] for row in table.rows}
    assert table.title.startswith(f"{recipe.name}: ")
    assert facts["run"].startswith("fab train ")
    assert facts["figures"].startswith(("measured", "cited: "))
    assert all(facts[name] for name in ("hardware", "time", "accuracy"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_setting_is_listed_once_with_differences_first(recipe: Recipe) -> None:
    found = settings_of(recipe)
    assert sorted(each.name for each in found) == sorted(field.name for field in dataclasses.fields(Settings))
    differs = [each.differs for each in found]
    assert differs == sorted(differs, reverse=True)
    assert all(each.help for each in found)


def test_shown_value_is_the_recipes_and_its_flag_changes_it() -> None:
    epochs = next(each for each in settings_of(DIGITS) if each.name == "epochs")
    assert (epochs.flag, epochs.value, epochs.default) == ("--epochs", 20, 10)
    changed = TrainConfig.from_argv(["--recipe", "digits", "--run-dir", "r", epochs.flag, "3"])
    assert changed.settings.epochs == 3


def test_only_differences_are_shown_unless_all_is_requested() -> None:
    _, short = tables(DIGITS, None, everything=False)
    _, whole = tables(DIGITS, None, everything=True)
    assert ("--epochs", "20", "10", "passes over the training images") in short.rows
    assert "--momentum" not in {row[0] for row in short.rows}
    assert short.footer == (f"{len(whole.rows) - len(short.rows)} more settings have default values; --all shows them",)
    assert "--momentum" in {row[0] for row in whole.rows}
    assert whole.footer == ()


def test_variant_shows_its_own_settings_and_without_a_variant_all_are_listed() -> None:
    chosen = variant_named(FAST, "4-nodes")
    assert chosen is not None
    _, settings = tables(FAST, chosen, everything=False)
    assert ("--epochs", "30") in {row[:2] for row in settings.rows}
    titles = [table.title for table in tables(FAST, None, everything=False)]
    assert titles[2:] == [f"--variant {name}" for name in ("1-node", "4-nodes", "8-nodes", "16-nodes")]


def test_document_is_json_with_every_setting() -> None:
    found = json.loads(json.dumps(document(FAST, variant_named(FAST, "16-nodes"))))
    assert (found["name"], found["evidence"], found["variant"]) == ("imagenet-fast", "cited", "16-nodes")
    (epochs,) = [each for each in found["settings"] if each["name"] == "epochs"]
    assert (epochs["flag"], epochs["value"], epochs["default"], epochs["differs"]) == ("--epochs", 50, 10, True)
    assert len(found["settings"]) == len(dataclasses.fields(Settings))
    assert [each["ranks"] for each in found["variants"]] == [8, 32, 64, 128]


def test_unknown_name_is_reported_with_nearest_match() -> None:
    with pytest.raises(UsageError, match="did you mean imagenet-90"):
        recipe_named("imagenet-900")
    with pytest.raises(UsageError, match=r"unknown\. Known: digits"):
        recipe_named("zzz")


@pytest.mark.parametrize(
    ("value", "written"), [(True, "yes"), (0.0001, "0.0001"), ((30, 60), "30,60"), ((), "-"), ("", "-"), (5, "5")]
)
def test_values_have_the_format_of_their_flags(value: object, written: str) -> None:
    assert text(value) == written
