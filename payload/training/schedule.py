"""What each epoch of a run is: size and batch of its images, its steps, and the learning rate of each step.

A function of the settings, the number of images and, where the batch is given by rank, the number of ranks. Standard
library only.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Final, Protocol

from payload.settings import SettingError, Settings
from payload.training.rates import Decay, parse_pieces

_PHASE: Final = re.compile(
    r"(?P<start>[0-9]+):(?P<size>[0-9]+)/(?P<batch>[0-9]+)(?:/(?P<crop>0?\.[0-9]+|1|0))?(?P<rectangular>/rectangular)?"
)
GRAMMAR: Final = (
    "must be phases START:SIZE/GLOBAL_BATCH[/SMALLEST_CROP][/rectangular] with commas between, as 0:128/512"
)


class Rates(Protocol):
    """Give the learning rate at an epoch, a fraction of one included."""

    def rate(self, epoch: float) -> float:
        """Return the rate."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImagePhase:
    """Say what images and batches are from one epoch on."""

    start: int
    size: int
    """Side of the training images, pixels; 0: the data's own."""
    global_batch: int
    smallest_crop: float
    """Least part of an image's area that a random crop keeps; 0: no random crops."""
    rectangular: bool = False
    """Whether test images keep their shape."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """Lay a run out, epoch by epoch."""

    epochs: int
    examples: int
    """Training images."""
    phases: tuple[ImagePhase, ...]
    rates: Rates
    base_batch: int
    """Global batch to which `rates` belong; 0: to whatever batch there is."""
    augmented_from: int
    """First epoch with changed images, counted from 0."""

    def phase(self, epoch: int) -> ImagePhase:
        """Return size and batch of an epoch, counted from 0."""
        return [phase for phase in self.phases if phase.start <= epoch][-1]

    def steps(self, epoch: int) -> int:
        """Return the steps of an epoch, a last partial batch included."""
        return -(-self.examples // self.phase(epoch).global_batch)

    @property
    def total_steps(self) -> int:
        """Return the steps of the run."""
        return sum(self.steps(epoch) for epoch in range(self.epochs))

    def images_left(self, epoch: int, step: int) -> int:
        """Return the images still to be trained on, after `step` steps of `epoch`."""
        done = min(step * self.phase(epoch).global_batch, self.examples) if epoch < self.epochs else 0
        return (self.epochs - epoch) * self.examples - done

    def rate(self, epoch: int, step: int) -> float:
        """Return the learning rate of a step, both counted from 0."""
        rate = self.rates.rate(epoch + step / self.steps(epoch))
        return rate * self.phase(epoch).global_batch / self.base_batch if self.base_batch else rate

    @property
    def peak(self) -> float:
        """Return the largest rate at the beginning of an epoch or the end of the warm-up."""
        points = [float(epoch) for epoch in range(self.epochs)]
        if isinstance(self.rates, Decay):
            points.append(min(self.rates.warmup_epochs, self.epochs - 1e-9))
        return max(self._rate_at(point) for point in points)

    def _rate_at(self, point: float) -> float:
        rate = self.rates.rate(point)
        return rate * self.phase(int(point)).global_batch / self.base_batch if self.base_batch else rate


def global_batch(settings: Settings, ranks: int) -> int:
    """Return the images a step over all ranks, where no phases say it."""
    if settings.global_batch:
        return settings.global_batch
    return min(settings.batch_per_rank * ranks, settings.global_batch_limit)


def schedule_for(settings: Settings, *, examples: int, ranks: int) -> Schedule:
    """Lay out a run over so many training images.

    A warm-up longer than half of the run is cut to half of it: a short trial run (`--epochs 1`) would otherwise end
    before its rate has climbed. Raises SettingError, also where a batch is larger than the data.
    """
    epochs = total_epochs(settings)
    phases = _phases(settings, ranks)
    for phase in phases:
        if phase.global_batch > examples:
            flag = "--image-phases" if settings.image_phases else "--global-batch"
            rule = f"more than the {examples} training images; choose a smaller batch or fewer ranks"
            raise SettingError(flag, phase.global_batch, rule)
    if settings.rate_phases:
        rates: Rates = parse_pieces(settings.rate_phases, epochs)
        base = 0
    else:
        rates, base = _decay(settings, epochs, phases[0].global_batch), settings.base_batch
    plain = settings.epochs if settings.augmented_epochs >= 0 else 0
    return Schedule(epochs=epochs, examples=examples, phases=phases, rates=rates, base_batch=base, augmented_from=plain)


def total_epochs(settings: Settings) -> int:
    """Return the epochs of a run, those with changed images included."""
    return settings.epochs + max(0, settings.augmented_epochs)


def check_schedule(settings: Settings) -> None:
    """Hold the schedule's settings against each other, before data and ranks are known. Raises SettingError."""
    epochs = total_epochs(settings)
    _phases(settings, 1)
    if settings.rate_phases:
        parse_pieces(settings.rate_phases, epochs)
    if settings.decay == "step" and not settings.decay_epochs and not settings.rate_phases:
        raise SettingError("--decay", "step", "needs the epochs of its steps, as --decay-epochs 30,60,80")
    if list(settings.decay_epochs) != sorted(set(settings.decay_epochs)):
        raise SettingError("--decay-epochs", ",".join(map(str, settings.decay_epochs)), "must rise")


def _decay(settings: Settings, epochs: int, first_batch: int) -> Decay:
    """Build the unscaled rates; where they are scaled, the warm-up begins at its own, unscaled rate."""
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


def parse_phases(text: str, *, smallest_crop: float, rectangular: bool) -> tuple[ImagePhase, ...]:
    """Parse `--image-phases`; what a phase leaves out is as the settings say. Raises SettingError."""
    flag = "--image-phases"
    phases = []
    for word in text.split(","):
        found = _PHASE.fullmatch(word.strip())
        if not found or not int(found["size"]) or not int(found["batch"]):
            raise SettingError(flag, text, f"{GRAMMAR}; {word.strip()!r} is none")
        phases.append(
            ImagePhase(
                start=int(found["start"]),
                size=int(found["size"]),
                global_batch=int(found["batch"]),
                smallest_crop=float(found["crop"]) if found["crop"] else smallest_crop,
                rectangular=rectangular or bool(found["rectangular"]),
            )
        )
    if phases[0].start != 0 or any(a.start >= b.start for a, b in itertools.pairwise(phases)):
        raise SettingError(flag, text, "the first phase must start at epoch 0, and each after the one before")
    return tuple(phases)


def phases_text(phases: Sequence[ImagePhase]) -> str:
    """Write phases as `parse_phases` reads them."""
    return ",".join(
        f"{phase.start}:{phase.size}/{phase.global_batch}"
        + (f"/{phase.smallest_crop:g}" if phase.smallest_crop else "")
        + ("/rectangular" if phase.rectangular else "")
        for phase in phases
    )
