"""A schedule of faults, drawn from a seed. The same seed gives the same faults at the same times."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, Final

from localcloud.errors import LocalCloudError

KINDS: Final = {
    "kill-rank": "kill a rank of a host",
    "freeze-rank": "freeze a rank of a host for a while",
    "kill-supervisor": "kill the process that --supervisor selects",
    "kill-host": "kill every process of a host",
    "kill-half": "kill every process of half of the hosts at the same time",
    "kill-first-host": "kill every process of the host of rank 0, or of the first remaining rank",
    "cut": "drop all packets of a host for a while",
    "drop": "drop all outgoing packets of a host for a while",
    "slow": "limit the sending rate of a host to 1 Mbit/s for a while",
    "fill-disk": "fill the shared file system for a while; needs `start --efs-size`",
    "flip-bit": "flip a bit of the newest file that --flip selects",
    "api-errors": "make half of the API calls fail with status 503 for a while",
    "spot-notice": "interrupt a spot instance, with a notice",
    "terminate": "terminate an instance",
    "reboot": "reboot an instance",
}
"""The kinds of faults with their descriptions."""
LASTING: Final = frozenset({"freeze-rank", "cut", "drop", "slow", "fill-disk", "api-errors"})
"""Temporary kinds, which are repaired after a time."""


WHILE_WRITING: Final = frozenset({"spot-notice"})
"""Kinds that wait for a program to write, if the user gives a pattern for it."""
CLOSE_S: Final = (1.0, 5.0)
"""Seconds between a fault and the next one, if the next one must occur during the recovery."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of a schedule."""

    at_s: float
    """Seconds from the start of the schedule."""
    kind: str
    place: float
    """Random place of the target among all possible ones, sorted: 0 is the first, and just below 1 is the last."""
    lasts_s: float = 0.0
    """Seconds until the repair, or 0 for a permanent fault."""
    hosts: str = ""
    """Regular expression for its possible hosts. If empty, the one for all faults applies."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LocalCloudError(f"fault {self.kind!r}: must be one of {', '.join(KINDS)}")

    def document(self) -> dict[str, Any]:
        """Return the fault's fields by name, as values for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Return the fault's line in the printed schedule, such as `after 20 s: cut, on worker.*, for 15 s`."""
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
    """Draw the faults of a schedule, earliest first. All start before `duration_s`, and the first at `first_s`.

    The intervals are 0.5 to 1.5 times `every_s`, or, with the probability `close_share`, 1 to 5 s, while programs still
    recover from the previous fault. Each of `kinds` may be followed by @ and a regular expression for its hosts. A
    temporary fault lasts between a quarter of `longest_s` and `longest_s`. Raises LocalCloudError for an unknown kind.
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
        is_close = generator.random() < close_share  # Always drawn, so that other values do not depend on close_share.
        at_s += generator.uniform(*CLOSE_S) if is_close else gap_s
    return tuple(found)
