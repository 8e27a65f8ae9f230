"""Facts about what `fab plan --calibrate` measures: the recipe's network and batch, and the link of all workers."""

from __future__ import annotations

import dataclasses

import pytest

from cluster.bench.probe import LARGE_BYTES, SMALL_BYTES, probe_settings
from payload.recipes.digits import DIGITS
from payload.settings.bench import ALLREDUCE, TRAINING

SETTINGS = DIGITS.settings


def test_the_network_of_the_recipe_is_measured_on_one_worker_and_on_all_and_the_link_on_all() -> None:
    cells = probe_settings(SETTINGS, 4).cells()
    training = [(each.network, each.batch_per_rank, each.nodes) for each in cells if each.kind == TRAINING]
    assert training == [(SETTINGS.network, SETTINGS.batch_per_rank, nodes) for nodes in (1, 4)]
    sums = [(each.message_bytes, each.nodes) for each in cells if each.kind == ALLREDUCE]
    assert sums == [(SMALL_BYTES, 4), (LARGE_BYTES, 4)]


@pytest.mark.parametrize("workers", [0, 1])
def test_one_worker_has_no_link(workers: int) -> None:
    assert {each.kind for each in probe_settings(SETTINGS, workers).cells()} == {TRAINING}


def test_a_batch_of_all_ranks_is_shared_by_the_workers() -> None:
    whole = dataclasses.replace(SETTINGS, global_batch=256)
    assert {each.batch_per_rank for each in probe_settings(whole, 4).cells() if each.kind == TRAINING} == {64}


def test_a_recipe_in_half_precision_is_measured_in_it() -> None:
    half = dataclasses.replace(SETTINGS, precision="bfloat16")
    assert {each.precision for each in probe_settings(half, 2).cells() if each.kind == TRAINING} == {"bfloat16"}
