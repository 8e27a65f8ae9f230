"""Epochs, batches and learning rates."""

from __future__ import annotations

import dataclasses

from payload.settings.rules import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """Choose epochs, batches and learning rates."""

    epochs: int = setting(10, "passes over the training images", low=1, high=100_000)
    batch_per_rank: int = setting(32, "images a rank and step", low=1, high=1 << 20)
    global_batch: int = setting(
        0, "images a step over all ranks, in place of batch_per_rank; 0: from batch_per_rank", low=0, high=1 << 24
    )
    global_batch_limit: int = setting(
        1 << 24, "images a step over all ranks at most, unless a batch is given", low=1, high=1 << 24
    )
    base_batch: int = setting(
        0, "global batch to which the rate applies; it grows linearly with the batch; 0: constant", low=0, high=1 << 24
    )
    learning_rate: float = setting(0.1, "learning rate at base_batch, after the warm-up", low=1e-12, high=1e6)
    warmup_epochs: float = setting(0.0, "epochs in which the rate rises linearly", low=0, high=100_000)
    warmup_rate: float = setting(0.0, "rate at which the warm-up begins; 0: learning_rate unscaled", low=0, high=1e6)
    decay: str = setting(
        "cosine", "how the rate falls after the warm-up", choices=("cosine", "polynomial", "step", "constant")
    )
    decay_power: float = setting(2.0, "power of the polynomial decay, to zero", low=0.01, high=100)
    decay_epochs: tuple[int, ...] = setting((), "epochs at which the step decay falls, separated by commas")
    decay_factor: float = setting(0.1, "factor of the rate at each of decay_epochs", low=0, high=1)
    seed: int = setting(1, "seed of weights, order and augmentation", low=0, high=(1 << 31) - 1)
    rate_phases: str = setting(
        "",
        "rates in place of all above, in epochs: START-END:RATE or START-END:FIRST..LAST, separated by commas",
    )
    image_phases: str = setting(
        "",
        "images from an epoch on: START:SIZE/GLOBAL_BATCH[/SMALLEST_CROP][/rectangular], separated by commas",
    )
