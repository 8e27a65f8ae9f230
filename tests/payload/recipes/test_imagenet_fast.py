from __future__ import annotations

from pathlib import Path

import pytest

from payload.recipes.train_config import TrainConfig
from payload.training.schedule import Schedule, schedule_for

TRAIN_IMAGES = 1_281_167
"""Training images of ImageNet (ILSVRC 2012)."""
# The run's own lr, then epoch:rate as a multiple of it, as published. 14- is just before epoch 14, where a line ends.
RATES = {
    16: (1.88, "0:1 3:1.5 6:2 15.5:2 16:1 19-:1 19:0.3 31-:0.3 31:0.03 37-:0.03 37:0.02 38-:0.02 38:0.002 50-:0.002"),
    8: (1.92, "0:1 3:1.5 6:2 11:2 12.5:1.5 14-:1 14:1 17:1 20:0.5875 23:0.175 26:0.09625 29-:0.0175 29:0.01 36-:0.001"),
    4: (2.0, "0:1 3:1.5 6:2 11:2 12:1.5 13-:1 13:0.875 16:0.875 20:0.48125 24:0.0875 28-:0.00875 28:0.005 30-:0.0005"),
    1: (1.0, "0:1 3.5:1.5 7:2 10:1.125 13-:0.25 13:0.4375 17.5:0.240625 22:0.04375 25-:0.004375 25:0.0025 28-:0.00025"),
}
# Epoch, size, batch per GPU.
IMAGES = {
    16: [(0, 128, 64), (5, 128, 64), (6, 128, 128), (16, 224, 64), (19, 224, 192), (36, 224, 192), (37, 288, 128)],
    8: [(0, 128, 128), (6, 128, 256), (14, 224, 128), (17, 224, 224), (28, 224, 224), (29, 288, 128)],
    4: [(0, 128, 256), (6, 128, 512), (13, 224, 224), (27, 224, 224), (28, 288, 128)],
    1: [(0, 128, 512), (12, 128, 512), (13, 224, 224), (24, 224, 224), (25, 288, 128), (27, 288, 128)],
}
EPOCHS = {16: 50, 8: 36, 4: 30, 1: 28}


def configuration(ranks: int, *flags: str) -> TrainConfig:
    fixed = ["--recipe", "imagenet-fast", "--run-dir", "/run", "--data-dir", "/data"]
    return TrainConfig.from_argv([*fixed, *flags], ranks=ranks)


def schedule(nodes: int) -> Schedule:
    return schedule_for(configuration(8 * nodes).settings, examples=TRAIN_IMAGES, ranks=8 * nodes)


@pytest.mark.parametrize("nodes", RATES)
def test_rates_are_the_published_ones_point_by_point(nodes: int) -> None:
    lr, points = RATES[nodes]
    rates = schedule(nodes).rates
    for point in points.split():
        epoch, factor = point.split(":")
        at = float(epoch.rstrip("-")) - (1e-9 if epoch.endswith("-") else 0)
        assert rates.rate(at) == pytest.approx(lr * float(factor), rel=1e-6), f"epoch {epoch}"


@pytest.mark.parametrize("nodes", IMAGES)
def test_sizes_and_batches_are_the_published_ones(nodes: int) -> None:
    laid = schedule(nodes)
    assert laid.epochs == EPOCHS[nodes]
    for epoch, size, batch in IMAGES[nodes]:
        phase = laid.phase(epoch)
        assert (phase.size, phase.global_batch) == (size, batch * 8 * nodes), f"epoch {epoch}"
        assert phase.smallest_crop == {128: 0.08, 224: 0.087, 288: 0.5}[size]
        assert phase.rectangular == (size == 288)


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        (1, "1-node"),
        (8, "1-node"),
        (31, "1-node"),
        (32, "4-nodes"),
        (64, "8-nodes"),
        (128, "16-nodes"),
        (512, "16-nodes"),
    ],
)
def test_variant_follows_the_ranks(ranks: int, name: str) -> None:
    variant = configuration(ranks).variant
    assert variant is not None
    assert variant.name == name


def test_requested_variant_keeps_batches_on_other_ranks() -> None:
    config = configuration(2, "--variant", "16-nodes")
    assert schedule_for(config.settings, examples=TRAIN_IMAGES, ranks=2).phase(0).global_batch == 8192


def test_optimizer_is_the_published_one() -> None:
    settings = configuration(128).settings
    assert (settings.optimizer, settings.momentum, settings.weight_decay) == ("sgd", 0.9, 1e-4)
    assert (settings.precision, settings.loss_scale, settings.zero_gamma) == ("float16", 1024, True)
    assert not settings.decay_all
    assert Path(str(configuration(8).run_dir)) == Path("/run")
