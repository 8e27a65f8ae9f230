"""Recipes as workloads."""

from __future__ import annotations

import dataclasses

import pytest

from cluster.errors import UsageError
from cluster.planner.workload import IMAGES, NETWORKS, workload_of
from payload.models.registry import NETWORKS as REGISTERED
from payload.models.registry import Network as RegisteredNetwork
from payload.recipes import RECIPES, Recipe
from payload.recipes.digits import DIGITS
from payload.recipes.fashion_mnist import FASHION_MNIST
from payload.recipes.imagenet_90 import IMAGENET_90
from payload.recipes.imagenet_fast import IMAGENET_FAST
from payload.settings import Settings
from payload.settings.training import DATASETS
from tests.cluster.planner.fast_ai_2018 import DAWNBENCH


def settings(recipe: Recipe, ranks: int) -> Settings:
    """Return a recipe's settings on this number of ranks."""
    variant = recipe.variant_for(ranks)
    return dataclasses.replace(recipe.settings, **(variant.overrides if variant else {}))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_each_recipe_is_a_workload_of_all_its_epochs(recipe: Recipe) -> None:
    for ranks in (1, 8):
        chosen = settings(recipe, ranks)
        assert workload_of(chosen, ranks).epochs == chosen.total_epochs


def test_every_data_set_has_its_images() -> None:
    assert set(IMAGES) == set(DATASETS)


def test_batches_grow_with_the_ranks_up_to_their_limit() -> None:
    assert [workload_of(DIGITS.settings, ranks).phases[0].global_batch for ranks in (1, 2, 16)] == [32, 64, 128]
    assert workload_of(IMAGENET_90.settings, 64).phases[0].global_batch == 64 * 256


def test_phases_have_sizes_and_batches_for_any_number_of_ranks() -> None:
    phases = workload_of(settings(IMAGENET_FAST, 40), 40).phases
    assert [(phase.epochs, phase.size, phase.global_batch) for phase in phases] == [
        (6, 128, 8192),
        (7, 128, 16384),
        (15, 224, 7168),
        (2, 288, 4096),
    ]


def test_images_held_back_are_evaluated_and_not_trained_on() -> None:
    workload = workload_of(FASHION_MNIST.settings, 1)
    assert (workload.training_images, workload.evaluated_images, workload.jpeg) == (48_000, 12_000, False)


def test_gradients_in_half_precision_are_half_as_many_bytes() -> None:
    assert workload_of(settings(IMAGENET_FAST, 8), 8).gradient_bytes == 2 * 25_557_032
    assert workload_of(DIGITS.settings, 2).gradient_bytes == 4 * 431_080


def test_fewer_epochs_drop_the_phases_after_them() -> None:
    short = dataclasses.replace(settings(IMAGENET_FAST, 8), epochs=14, rate_phases="0-14:1")
    assert [phase.epochs for phase in workload_of(short, 8).phases] == [13, 1]


def test_batch_larger_than_the_data_is_rejected() -> None:
    large = dataclasses.replace(DIGITS.settings, global_batch_limit=1 << 20)
    rule = "a step on 64 ranks uses 2048 images, more than the 1438 images of the data"
    with pytest.raises(UsageError, match=f"--nodes: {rule}; choose fewer nodes, or a smaller --batch-per-rank"):
        workload_of(large, 64)
    with pytest.raises(UsageError, match=r"--global-batch: a step on 1 rank uses 4096 .*; choose a smaller batch"):
        workload_of(dataclasses.replace(DIGITS.settings, global_batch=4096), 1)


def test_run_to_an_epoch_ends_within_the_phase_of_that_epoch() -> None:
    run = DAWNBENCH[3].workload
    assert [phase.epochs for phase in run.until(20).phases] == [6, 10, 3, 1]
    assert run.until(0) == run.until(1000) == run


@pytest.mark.parametrize("network", REGISTERED, ids=lambda network: network.name)
def test_planner_and_training_program_have_the_same_networks(network: RegisteredNetwork) -> None:
    known = NETWORKS[network.name]
    assert (known.image_size, known.weights) == (network.image_size, network.parameters)
    assert known.multiply_adds == network.multiply_adds
