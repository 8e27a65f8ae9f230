"""The measurements of `fab plan --calibrate`: the recipe's network and batch, and the link of all workers."""

from __future__ import annotations

import dataclasses

import pytest

from cluster.planner.workload import PROBE_LARGE_BYTES, PROBE_SMALL_BYTES, probe_settings, workload_of
from payload.bench.ranks import check_networks, settings_of
from payload.recipes.benchmark import BENCHMARK
from payload.recipes.digits import DIGITS
from payload.recipes.imagenet_fast import IMAGENET_FAST
from payload.recipes.japanese_vowels import JAPANESE_VOWELS
from payload.settings import Settings
from payload.settings.bench import ALLREDUCE, TRAINING, BenchSettings, Cell
from payload.training.schedule import global_batch

SETTINGS = DIGITS.settings


def probed(settings: Settings, workers: int, ranks_per_node: int = 1) -> BenchSettings:
    """Return the measurements for a recipe's settings."""
    ranks = max(1, workers) * ranks_per_node
    return probe_settings(workload_of(settings, ranks), workers=workers, ranks=ranks)


def training(bench: BenchSettings) -> list[Cell]:
    """Return the cells that train a network."""
    return [each for each in bench.cells() if each.kind == TRAINING]


def test_network_is_measured_on_one_and_all_workers_and_the_link_on_all() -> None:
    found = probed(SETTINGS, 4)
    assert [(each.network, each.batch_per_rank, each.nodes) for each in training(found)] == [
        (SETTINGS.network, SETTINGS.batch_per_rank, nodes) for nodes in (1, 4)
    ]
    sums = [(each.message_bytes, each.nodes) for each in found.cells() if each.kind == ALLREDUCE]
    assert sums == [(PROBE_SMALL_BYTES, 4), (PROBE_LARGE_BYTES, 4)]
    for workers in (0, 1):
        assert {each.kind for each in probed(SETTINGS, workers).cells()} == {TRAINING}, "one worker has no link"


@pytest.mark.parametrize(("workers", "batch"), [(4, 32), (8, 16), (256, 1)])
def test_a_batch_that_the_recipe_limits_is_measured_as_it_is_trained(workers: int, batch: int) -> None:
    assert {each.batch_per_rank for each in training(probed(SETTINGS, workers))} == {batch}
    assert max(1, global_batch(SETTINGS, workers) // workers) == batch


@pytest.mark.parametrize(
    ("name", "ranks", "batch", "size"),
    [("1-node", 8, 224, 0), ("4-nodes", 32, 224, 0), ("8-nodes", 64, 224, 0), ("16-nodes", 128, 128, 288)],
)
def test_of_phases_the_one_that_computes_the_longest_is_measured(name: str, ranks: int, batch: int, size: int) -> None:
    (variant,) = (each for each in IMAGENET_FAST.variants if each.name == name)
    settings = dataclasses.replace(IMAGENET_FAST.settings, **variant.overrides)
    found = training(probed(settings, ranks // 8, ranks_per_node=8))
    assert {(each.batch_per_rank, each.image_size, each.precision) for each in found} == {(batch, size, "float16")}


def test_images_of_a_phase_that_are_not_the_published_ones_are_measured_in_their_size() -> None:
    small = dataclasses.replace(IMAGENET_FAST.settings, epochs=20, image_phases="0:128/512,18:224/224")
    assert {(each.batch_per_rank, each.image_size) for each in training(probed(small, 2))} == {(256, 128)}


@pytest.mark.parametrize("recipe", [SETTINGS, JAPANESE_VOWELS.settings, BENCHMARK.settings])
def test_images_as_the_network_was_published_keep_their_shape(recipe: Settings) -> None:
    found = probed(recipe, 2)
    check_networks(found)
    assert found.image_size == 0
    assert {settings_of(each, found).network for each in found.cells()} == {recipe.network}


def test_another_network_is_measured_on_the_images_and_in_the_precision_of_the_recipe() -> None:
    found = probed(dataclasses.replace(SETTINGS, network="lstm", precision="bfloat16"), 2)
    check_networks(found)
    assert {(each.network, each.image_size, each.precision) for each in training(found)} == {("lstm", 28, "bfloat16")}
