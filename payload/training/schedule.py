"""Compute the schedule of a run: image size, batch and steps of each epoch, and the learning rate of each step.

It depends on the settings and the number of images. If the batch is set for each rank, it also depends on the number of
ranks. Standard library only.
"""

from __future__ import annotations

import dataclasses

from payload.settings import SettingError, Settings
from payload.settings.image_phases import ImagePhase, parse_phases
from payload.settings.learning_rate import Decay, Piecewise, parse_pieces


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """The schedule of a run: its epochs, steps and learning rates."""

    epochs: int
    examples: int
    """Number of training images."""
    phases: tuple[ImagePhase, ...]
    rates: Piecewise | Decay
    base_batch: int
    """Global batch for which `rates` are meant. Rates scale with the batch. 0: they apply to any batch."""
    augmented_from: int
    """First epoch with augmented images, counted from 0."""

    def phase(self, epoch: int) -> ImagePhase:
        """Return the image size and batch of an epoch, counted from 0."""
        return [phase for phase in self.phases if phase.start <= epoch][-1]

    def steps(self, epoch: int) -> int:
        """Return the number of steps in an epoch, including a partial last batch."""
        return -(-self.examples // self.phase(epoch).global_batch)

    @property
    def largest_batch(self) -> int:
        """Return the number of images in the largest step over all ranks."""
        return max(phase.global_batch for phase in self.phases)

    @property
    def total_steps(self) -> int:
        """Return the number of steps in the run."""
        return sum(self.steps(epoch) for epoch in range(self.epochs))

    def images_left(self, epoch: int, step: int) -> int:
        """Return the number of images left to train on in the run, after `step` steps of `epoch`, counted from 0."""
        done = min(step * self.phase(epoch).global_batch, self.examples)
        return (self.epochs - epoch) * self.examples - done

    def rate(self, epoch: int, step: int) -> float:
        """Return the learning rate of a step. Epoch and step are counted from 0."""
        rate = self.rates.rate(epoch + step / self.steps(epoch))
        return rate * self.phase(epoch).global_batch / self.base_batch if self.base_batch else rate

    @property
    def peak(self) -> float:
        """Return the highest learning rate among the epoch starts and the end of the warm-up."""
        points = [float(epoch) for epoch in range(self.epochs)]
        if isinstance(self.rates, Decay):
            points.append(self.rates.warmup_epochs)
        return max(self._rate_at(point) for point in points)

    def _rate_at(self, point: float) -> float:
        rate = self.rates.rate(point)
        return rate * self.phase(int(point)).global_batch / self.base_batch if self.base_batch else rate


def global_batch(settings: Settings, ranks: int) -> int:
    """Return the number of images in a step over all ranks, for a run without image phases.

    The result is the setting `global_batch` if set, otherwise `batch_per_rank` times the ranks, at most
    `global_batch_limit`.
    """
    if settings.global_batch:
        return settings.global_batch
    return min(settings.batch_per_rank * ranks, settings.global_batch_limit)


def schedule_for(settings: Settings, *, examples: int, ranks: int) -> Schedule:
    """Return the schedule of a run with `examples` training images.

    The warm-up is limited to half of the run. Otherwise, a short trial run (`--epochs 1`) would end before its rate has
    risen. Raises SettingError if a setting is invalid or a batch is larger than the data.
    """
    epochs = settings.total_epochs
    phases = _phases(settings, ranks)
    for phase in phases:
        if phase.global_batch > examples:
            flag, fix = "--global-batch", "set a smaller --batch-per-rank or --global-batch, or use fewer ranks"
            if settings.image_phases:
                flag, fix = "--image-phases", "use smaller batches in the phases"
            raise SettingError(flag, phase.global_batch, f"more than the {examples} training images; {fix}")
    if settings.rate_phases:
        rates: Piecewise | Decay = parse_pieces(settings.rate_phases, epochs)
        base = 0
    else:
        rates, base = _decay(settings, epochs, phases[0].global_batch), settings.base_batch
    plain = settings.epochs if settings.augmented_epochs >= 0 else 0
    return Schedule(epochs=epochs, examples=examples, phases=phases, rates=rates, base_batch=base, augmented_from=plain)


def _decay(settings: Settings, epochs: int, first_batch: int) -> Decay:
    """Build the unscaled rates. If rates are scaled, the warm-up's first rate is divided by the scale to cancel it."""
    scale = first_batch / settings.base_batch if settings.base_batch else 1.0
    start = settings.warmup_rate or min(settings.learning_rate, settings.learning_rate * scale)
    return Decay(
        kind=settings.decay,
        start=start / scale,
        peak=settings.learning_rate,
        warmup_epochs=min(settings.warmup_epochs, epochs / 2),
        epochs=epochs,
        power=settings.decay_power,
        drops=settings.decay_epochs,
        factor=settings.decay_factor,
    )


def _phases(settings: Settings, ranks: int) -> tuple[ImagePhase, ...]:
    if not settings.image_phases:
        only = ImagePhase(
            start=0,
            size=settings.image_size,
            global_batch=global_batch(settings, ranks),
            smallest_crop=settings.smallest_crop,
            rectangular=settings.rectangular_validation,
        )
        return (only,)
    return parse_phases(
        settings.image_phases, smallest_crop=settings.smallest_crop, rectangular=settings.rectangular_validation
    )
