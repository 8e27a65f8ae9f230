from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.recipes.train_config import TrainConfig
from payload.training.schedule import Schedule, schedule_for

TRAIN_IMAGES = 1_281_167


def configuration(ranks: int, *flags: str) -> TrainConfig:
    fixed = ["--recipe", "imagenet-90", "--run-dir", "/run", "--data-dir", "/data"]
    return TrainConfig.from_argv([*fixed, *flags], ranks=ranks)


def schedule(ranks: int, *flags: str) -> Schedule:
    return schedule_for(configuration(ranks, *flags).settings, examples=TRAIN_IMAGES, ranks=ranks)


def rate(laid: Schedule, epoch: float) -> float:
    """Return the scaled rate at a fractional epoch."""
    return laid.rates.rate(epoch) * (laid.phase(0).global_batch / laid.base_batch if laid.base_batch else 1)


def test_64_gpus_have_the_published_settings() -> None:
    settings = configuration(64).settings
    assert schedule(64).peak == pytest.approx(6.4)
    assert (settings.warmup_epochs, settings.momentum, settings.weight_decay) == (10, 0.9, 1e-4)
    assert (settings.batch_per_rank, settings.loss_scale, settings.optimizer) == (256, 1024, "sgd")


@pytest.mark.parametrize(("epoch", "expected"), [(0, 0.001), (5, 3.2005), (10, 6.4), (50, 1.6), (70, 0.4), (90, 0)])
def test_rate_climbs_for_10_epochs_and_falls_as_a_parabola(epoch: float, expected: float) -> None:
    assert rate(schedule(64), epoch) == pytest.approx(expected)


def test_from_128_gpus_on_larc_has_the_published_settings() -> None:
    assert configuration(127).settings.optimizer == "sgd"
    settings = configuration(128).settings
    assert (settings.optimizer, settings.trust_coefficient) == ("larc", 0.013)
    assert (settings.momentum, settings.weight_decay) == (0.977, 5e-4)
    assert (settings.loss_scale, settings.warmup_epochs) == (256, 5)
    for ranks in (128, 256):
        assert rate(schedule(ranks), 5) == pytest.approx(3.7)


@given(st.sampled_from([1, 2, 8, 64, 127, 128, 512]), st.lists(st.floats(0, 90), min_size=2, max_size=20))
def test_rate_climbs_to_its_peak_and_then_falls(ranks: int, epochs: list[float]) -> None:
    laid, warmup = schedule(ranks), configuration(ranks).settings.warmup_epochs
    points = [(epoch, rate(laid, epoch)) for epoch in sorted(epochs)]
    for (a, rate_a), (b, rate_b) in itertools.pairwise(points):
        assert 0 <= rate_b <= laid.peak * (1 + 1e-9)
        if b < warmup:
            assert rate_a <= rate_b
        elif a >= warmup:
            assert rate_a >= rate_b
