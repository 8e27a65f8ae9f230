"""A schedule of faults, drawn from a seed: the same seed gives the same faults at the same times."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, Final

from localcloud.errors import LocalCloudError

KINDS: Final = {
    "kill-rank": "kill a rank of a host",
    "freeze-rank": "freeze a rank of a host for a while",
    "kill-supervisor": "kill the process that --supervisor describes",
    "kill-host": "end every process of a host",
    "kill-half": "end every process of half of the hosts at once",
    "kill-first-host": "end every process of the host of rank 0, or of the first rank that is left",
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


WHILE_WRITING: Final = frozenset({"spot-notice"})
"""Those that wait for a program to write, where it is said how that is seen."""
CLOSE_S: Final = (1.0, 5.0)
"""How long after the one before a fault comes that meets a recovery, s."""


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
    hosts: str = ""
    """Regular expression of the hosts that it may meet, in place of those of all faults; "": those."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LocalCloudError(f"fault {self.kind!r}: must be one of {', '.join(KINDS)}")

    def document(self) -> dict[str, Any]:
        """Return the fault as JSON values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Return the fault in words."""
        where = f", on {self.hosts}" if self.hosts else ""
        lasting = f", for {self.lasts_s:.0f} s" if self.lasts_s else ""
        return f"after {self.at_s:.0f} s: {self.kind}{where}{lasting}"


def draw(
    seed: int,
    *,
    kinds: Sequence[str],
    first_s: float,
    every_s: float,
    duration_s: float,
    longest_s: float,
    close_share: float = 0.0,
) -> tuple[Fault, ...]:
    """Draw faults from `first_s` on, at half of `every_s` to one and a half between them, before `duration_s`.

    Each of `kinds` may be followed by @ and a regular expression of the hosts that it meets. `close_share` of the
    faults follow the one before after 1 to 5 s, while programs still recover from it. One that lasts takes a quarter
    of `longest_s` at least. Raises LocalCloudError for an unknown kind.
    """
    found: list[Fault] = []
    at_s = first_s
    while at_s < duration_s:
        generator = random.Random(f"{seed}/fault/{len(found)}")  # noqa: S311  # the same faults on every machine
        kind, _, hosts = generator.choice(list(kinds)).partition("@")
        place, lasts_s = generator.random(), generator.uniform(longest_s / 4, longest_s)
        lasts_s = round(lasts_s, 1) if kind in LASTING else 0.0
        found.append(Fault(at_s=round(at_s, 1), kind=kind, place=place, lasts_s=lasts_s, hosts=hosts))
        gap_s = every_s * generator.uniform(0.5, 1.5)
        is_close = generator.random() < close_share  # Drawn also without any: the faults are the same then.
        at_s += generator.uniform(*CLOSE_S) if is_close else gap_s
    return tuple(found)
