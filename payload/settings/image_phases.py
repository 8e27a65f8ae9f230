"""Parse the phases of a run: image size and batch from a given epoch. Standard library only."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Final

from payload.settings.validation import SettingError

_PHASE: Final = re.compile(
    r"(?P<start>[0-9]+):(?P<size>[0-9]+)/(?P<batch>[0-9]+)(?:/(?P<crop>0?\.[0-9]+|1|0))?(?P<rectangular>/rectangular)?"
)
GRAMMAR: Final = (
    "must be phases START:SIZE/GLOBAL_BATCH[/SMALLEST_CROP][/rectangular] separated by commas, with a size and batch "
    "above 0, for example 0:128/512"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImagePhase:
    """Image size and batch from one epoch until the next phase."""

    start: int
    size: int
    """Side of the training images in pixels; 0: the data's own size."""
    global_batch: int
    smallest_crop: float
    """Minimum fraction of an image's area that a random crop keeps; 0: no random crops."""
    rectangular: bool = False
    """Whether test images roughly keep their aspect ratio."""


def parse_phases(text: str, *, smallest_crop: float, rectangular: bool) -> tuple[ImagePhase, ...]:
    """Parse the value of `--image-phases` into phases in ascending order. Raises SettingError if it is invalid.

    `smallest_crop`: for phases that do not state one. `rectangular`: if True, all phases are rectangular; otherwise
    only those that state it.
    """
    flag = "--image-phases"
    phases = []
    for word in text.split(","):
        found = _PHASE.fullmatch(word.strip())
        if not found or not int(found["size"]) or not int(found["batch"]):
            raise SettingError(flag, text, f"{GRAMMAR}; invalid: {word.strip()!r}")
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
        raise SettingError(
            flag, text, "the first phase must start at epoch 0, and each other phase after its predecessor"
        )
    return tuple(phases)


def phases_text(phases: Sequence[ImagePhase]) -> str:
    """Format phases as text for `parse_phases`.

    A smallest crop of 0 is left out, so parsing replaces it by the parser's `smallest_crop`.
    """
    return ",".join(
        f"{phase.start}:{phase.size}/{phase.global_batch}"
        + (f"/{phase.smallest_crop:g}" if phase.smallest_crop else "")
        + ("/rectangular" if phase.rectangular else "")
        for phase in phases
    )
