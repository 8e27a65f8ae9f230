"""Learning rates as functions of the (fractional) epoch. Standard library only.

They do not depend on the number of steps or ranks, so published schedules apply to any batch and cluster.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence
from typing import Final

from payload.settings.validation import SettingError

_PIECE: Final = re.compile(r"(?P<start>[0-9]+)-(?P<end>[0-9]*):(?P<first>[^.].*?)(?:\.\.(?P<last>.+))?")
GRAMMAR: Final = (
    "must be pieces START-END:RATE or START-END:FIRST..LAST separated by commas, for example 0-5:0.1..1,5-20:1"
)

LOWER_RATES: Final = (
    "use lower rates (--rate-phases if set, otherwise --learning-rate, or a longer --warmup-epochs), in a new run or "
    "with --resume from the last checkpoint"
)
"""Remedy for a run that diverged."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """A rate that changes linearly from one epoch to another."""

    start: float
    end: float
    first: float
    """Rate at epoch `start`."""
    last: float
    """Rate at epoch `end`. The next piece may start at another rate."""

    def rate(self, epoch: float) -> float:
        """Return the rate at an epoch within the piece."""
        return self.first + (self.last - self.first) * (epoch - self.start) / (self.end - self.start)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piecewise:
    """A schedule of linear pieces from epoch 0. Raises ValueError for gaps, overlaps or negative rates."""

    pieces: tuple[Piece, ...]

    def __post_init__(self) -> None:
        edges = [0.0, *(piece.end for piece in self.pieces)]
        if not self.pieces or [piece.start for piece in self.pieces] != edges[:-1]:
            raise ValueError(
                "the first piece must start at epoch 0, and each other piece at the end of its predecessor"
            )
        if any(start >= end for start, end in itertools.pairwise(edges)):
            raise ValueError("each piece must end after it starts")
        if any(not 0 <= rate < math.inf for piece in self.pieces for rate in (piece.first, piece.last)):
            raise ValueError("rates must be numbers of 0 or more")

    @property
    def end(self) -> float:
        """Return the epoch at which the last piece ends."""
        return self.pieces[-1].end

    def rate(self, epoch: float) -> float:
        """Return the rate at an epoch. At the boundary of two pieces, the second one applies.

        After the last piece, its last rate applies.
        """
        for piece in self.pieces:
            if epoch < piece.end:
                return piece.rate(epoch)
        return self.pieces[-1].last


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decay:
    """A linear warm-up from `start` to `peak`, then a decay until the last epoch."""

    kind: str
    """cosine and polynomial end at zero; step multiplies by `factor` at each epoch in `drops`; constant stays."""
    start: float
    """Rate at the start of the warm-up."""
    peak: float
    warmup_epochs: float
    epochs: float
    power: float = 2.0
    drops: tuple[int, ...] = ()
    factor: float = 0.1

    def rate(self, epoch: float) -> float:
        """Return the rate at an epoch from 0 to `epochs`."""
        if epoch < self.warmup_epochs:
            return self.start + (self.peak - self.start) * epoch / self.warmup_epochs
        length = self.epochs - self.warmup_epochs
        left = max(0.0, (self.epochs - epoch) / length) if length else 0.0
        if self.kind == "cosine":
            return self.peak * 0.5 * (1 - math.cos(math.pi * left))
        if self.kind == "polynomial":
            return float(self.peak * left**self.power)
        if self.kind == "step":
            return float(self.peak * self.factor ** sum(drop <= epoch for drop in self.drops))
        return self.peak


def parse_pieces(text: str, epochs: int) -> Piecewise:
    """Parse the value of `--rate-phases` for a run of `epochs` epochs. A piece without an end extends to `epochs`.

    Raises SettingError if the text is invalid or the pieces end before the run.
    """
    flag = "--rate-phases"
    pieces = []
    for word in text.split(","):
        found = _PIECE.fullmatch(word.strip())
        try:
            if not found:
                raise ValueError(GRAMMAR)
            first = float(found["first"])
            last = first if found["last"] is None else float(found["last"])
        except ValueError:
            raise SettingError(flag, text, f"{GRAMMAR}; invalid: {word.strip()!r}") from None
        end = float(found["end"] or epochs)
        pieces.append(Piece(start=float(found["start"]), end=end, first=first, last=last))
    try:
        result = Piecewise(pieces=tuple(pieces))
    except ValueError as error:
        raise SettingError(flag, text, str(error)) from None
    if result.end < epochs:
        raise SettingError(
            flag, text, f"ends at epoch {result.end:g}, but the run has {epochs}; lengthen the last piece"
        )
    return result


def pieces_text(pieces: Sequence[tuple[int, int, float, float]]) -> str:
    """Format pieces (start, end, first rate, last rate) as text for `parse_pieces`."""
    return ",".join(
        f"{start}-{end}:{first:.10g}" + ("" if first == last else f"..{last:.10g}")
        for start, end, first, last in pieces
    )
