"""A schedule of faults, drawn from a seed: the same seed gives the same faults at the same times."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from localcloud.errors import LocalCloudError
from localcloud.manners.draws import Draws

KINDS: Final = {
    "kill-rank": "kill a rank of a host",
    "freeze-rank": "freeze a rank of a host for a while",
    "kill-supervisor": "kill the process that --supervisor describes",
    "kill-host": "end every process of a host",
    "cut": "drop all packets of a host for a while",
    "drop": "drop what a host sends, and not what it receives, for a while",
    "slow": "let a host send 1 Mbit/s at most for a while",
    "fill-disk": "fill the shared file system, where `start --efs-size` limits it, for a while",
    "flip-bit": "flip a bit of the newest file that --flip describes",
    "api-errors": "answer half of the API's calls with 503 for a while",
    "spot-notice": "interrupt a spot instance, with a notice",
    "terminate": "terminate an instance",
    "reboot": "reboot an instance",
}
"""Each kind of fault, in words."""
LASTING: Final = frozenset({"freeze-rank", "cut", "drop", "slow", "fill-disk", "api-errors"})
"""Those that end by themselves."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of a schedule."""

    at_s: float
    """From the beginning of the schedule."""
    kind: str
    place: float
    """Which of the things there are then, sorted: 0 is the first, and just below 1 the last; 1 itself is none."""
    lasts_s: float = 0.0
    """0: it does not end by itself."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LocalCloudError(f"fault {self.kind!r}: must be one of {', '.join(KINDS)}")

    def document(self) -> dict[str, Any]:
        """Return the fault as JSON values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Return the fault in words."""
        lasting = f", for {self.lasts_s:.0f} s" if self.lasts_s else ""
        return f"after {self.at_s:.0f} s: {self.kind}{lasting}"


def draw(
    seed: int, *, kinds: Sequence[str], first_s: float, every_s: float, duration_s: float, longest_s: float
) -> tuple[Fault, ...]:
    """Draw faults from `first_s` on, at half of `every_s` to one and a half between them, before `duration_s`.

    One that lasts takes a quarter of `longest_s` at least. Raises LocalCloudError for an unknown kind.
    """
    draws = Draws(seed)
    found: list[Fault] = []
    at_s = first_s
    while at_s < duration_s:
        generator = draws.draw("fault")
        kind = generator.choice(list(kinds))
        place, lasts_s = generator.random(), generator.uniform(longest_s / 4, longest_s)
        lasts_s = round(lasts_s, 1) if kind in LASTING else 0.0
        found.append(Fault(at_s=round(at_s, 1), kind=kind, place=place, lasts_s=lasts_s))
        at_s += every_s * generator.uniform(0.5, 1.5)
    return tuple(found)
