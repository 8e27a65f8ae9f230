from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.training.imagenet_90 import EPOCHS, settings_for


def test_64_gpus_have_the_published_settings() -> None:
    settings = settings_for(64)
    assert settings.peak_rate == pytest.approx(6.4)
    assert (settings.warmup_epochs, settings.momentum, settings.weight_decay) == (10, 0.9, 1e-4)
    assert (settings.batch_per_gpu, settings.loss_scale, settings.larc_eta) == (256, 1024, None)


@pytest.mark.parametrize(("epoch", "rate"), [(0, 0.001), (5, 3.2005), (10, 6.4), (50, 1.6), (70, 0.4), (90, 0)])
def test_the_rate_climbs_for_10_epochs_and_falls_as_a_parabola(epoch: float, rate: float) -> None:
    assert settings_for(64).rate(epoch) == pytest.approx(rate)


def test_from_128_gpus_on_larc_has_the_published_settings() -> None:
    assert settings_for(127).larc_eta is None
    settings = settings_for(128)
    assert (settings.larc_eta, settings.momentum, settings.weight_decay) == (0.013, 0.977, 5e-4)
    assert (settings.loss_scale, settings.warmup_epochs, settings.peak_rate) == (256, 5, 3.7)
    assert settings.rate(5) == pytest.approx(3.7)


def test_the_rate_follows_the_global_batch() -> None:
    assert settings_for(8).peak_rate == pytest.approx(0.8)
    assert settings_for(8, batch_per_gpu=128).peak_rate == pytest.approx(0.4)


@given(st.integers(1, 512), st.lists(st.floats(0, EPOCHS), min_size=2, max_size=20))
def test_the_rate_climbs_to_its_peak_and_then_falls(gpus: int, epochs: list[float]) -> None:
    settings = settings_for(gpus)
    points = [(epoch, settings.rate(epoch)) for epoch in sorted(epochs)]
    for (a, rate_a), (b, rate_b) in itertools.pairwise(points):
        assert 0 <= rate_b <= settings.peak_rate * (1 + 1e-9)
        if b < settings.warmup_epochs:
            assert rate_a <= rate_b
        elif a >= settings.warmup_epochs:
            assert rate_a >= rate_b


def test_wrong_values_are_refused() -> None:
    for epoch in (-1.0, 90.5, float("nan")):
        with pytest.raises(ValueError, match="the run has epochs 0 to 90"):
            settings_for(64).rate(epoch)
    for values in ((0, 256), (64, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            settings_for(values[0], batch_per_gpu=values[1])
