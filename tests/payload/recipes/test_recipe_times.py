"""Current instance types that replace the types of older recipes."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import pytest

from payload.recipes import RECIPES, Recipe
from payload.recipes.recipe_times import NODES, Node, resnet50_epochs, resnet50_times
from stacks.gpus import CAPABILITIES, FIRST_SUPPORTED

TABLE: Final = Path(__file__).parents[3] / "stacks" / "instance_types.csv"
TYPES: Final = {
    row["name"]: row
    for row in csv.DictReader(line for line in TABLE.open(encoding="utf-8") if not line.startswith("#"))
}
OF_OLDER_TYPES: Final = [recipe for recipe in RECIPES if "p3" in recipe.hardware.lower()]


def test_v100_recipes_name_current_types() -> None:
    assert {recipe.name for recipe in OF_OLDER_TYPES} == {"fashion-mnist", "imagenet-90", "imagenet-fast"}


@pytest.mark.parametrize("recipe", OF_OLDER_TYPES, ids=lambda recipe: recipe.name)
def test_each_type_has_a_gpu_supported_by_the_runtime(recipe: Recipe) -> None:
    assert len(recipe.current_types) == 3
    for each in recipe.current_types:
        assert CAPABILITIES[TYPES[each.instance_type]["gpu_name"]] >= FIRST_SUPPORTED
        assert (each.evidence == "not measured") == (each.source == "")


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.gpu)
def test_each_node_has_eight_gpus_of_that_name(node: Node) -> None:
    row = TYPES[node.instance_type]
    assert (row["gpus"], row["gpu_name"]) == ("8", node.gpu)


def test_time_on_a100_is_cited_and_others_are_estimated() -> None:
    a100, h100, l40s = resnet50_epochs(90)
    assert (a100.evidence, a100.expected_time) == ("cited", "steps of 90 epochs in 1 h 50 min on one node")
    assert (h100.evidence, h100.expected_time) == ("estimated", "steps of 90 epochs in 0 h 51 min on one node")
    assert (l40s.evidence, l40s.expected_time) == ("estimated", "steps of 90 epochs in 3 h 19 min on one node")
    assert [each.expected_time for each in resnet50_times()] == [
        "0.55 of these times",
        "0.25 of these times",
        "0.98 of these times",
    ]
