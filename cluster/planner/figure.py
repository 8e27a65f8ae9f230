"""A figure of the model with its range and source."""

from __future__ import annotations

import dataclasses
from typing import Final, Literal, Self

Evidence = Literal["cited", "measured", "estimated", "calibrated"]
CITED: Final = "cited"
MEASURED: Final = "measured"
ESTIMATED: Final = "estimated"
CALIBRATED: Final = "calibrated"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Range:
    """A number and the range in which it is expected."""

    low: float
    value: float
    high: float

    def times(self, factor: float) -> Self:
        """Return the number and its range, multiplied by an exact factor."""
        return dataclasses.replace(self, low=self.low * factor, value=self.value * factor, high=self.high * factor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure(Range):
    """A number, the range in which it is expected, and its source."""

    evidence: Evidence
    """`cited` from a publication, `measured` by this project, `calibrated` from a run on the same hardware, or
    `estimated` from one of these. `source` has the details.
    """
    source: str

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.value <= self.high:
            raise ValueError(
                f"{self.source}: the value {self.value:g} is not in its range, {self.low:g} to {self.high:g}"
            )

    def at(self, value: float) -> Figure:
        """Return a copy with another value, which may be outside of the figure's range. The copy has no range."""
        return dataclasses.replace(self, value=value, low=value, high=value)


def exact(value: float, evidence: Evidence, source: str) -> Figure:
    """Return a figure without a range. `evidence` is how the value is known, `source` where it comes from."""
    return Figure(value=value, low=value, high=value, evidence=evidence, source=source)


def within(value: float, down: float, up: float, evidence: Evidence, source: str) -> Figure:
    """Return a figure with a range from `down` to `up` times its value, so `down` is at most 1 and `up` at least 1.

    `evidence` is how the value is known, `source` where it comes from.
    """
    return Figure(value=value, low=value * down, high=value * up, evidence=evidence, source=source)
