"""What a run may take at most, in hours and in US dollars, and what its GPUs must reach before it begins. Pure."""

from __future__ import annotations

import dataclasses
import math
from typing import Final

from agent.errors import SpecError

NEAR: Final = 0.8
"""Share of a bound from which a run is warned."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a run may take; 0: as much as it likes. Neither time in a queue counts nor time between two attempts."""

    max_hours: float = 0.0
    """From the start of the supervisor to the end of the ranks, summed over the attempts."""
    max_usd: float = 0.0
    """What its nodes and the master cost in that time, at on-demand prices."""

    def __post_init__(self) -> None:
        for name in ("max_hours", "max_usd"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise SpecError(f"bounds: {name} = {value!r}: must be 0 or more")

    def __bool__(self) -> bool:
        return bool(self.max_hours or self.max_usd)

    def share(self, seconds: float, usd: float | None) -> float:
        """Return how much of the nearer bound is used, 1 for all of it; `usd`: None where the price is not known."""
        shares = [seconds / 3600 / self.max_hours] if self.max_hours else []
        shares += [usd / self.max_usd] if self.max_usd and usd is not None else []
        return max(shares, default=0.0)

    def left_s(self, seconds: float, usd: float | None, usd_per_hour: float | None) -> float:
        """Return after how many seconds more the nearer bound is reached; inf where there is none."""
        left = [self.max_hours * 3600 - seconds] if self.max_hours else []
        if self.max_usd and usd is not None and usd_per_hour:
            left.append((self.max_usd - usd) / usd_per_hour * 3600)
        return max(0.0, min(left, default=math.inf))

    def describe(self, seconds: float, usd: float | None) -> str:
        """Return the bound of which most is used, and how much that is, as `--max-cost 5: $4.02 of $5 after 1.5 h`."""
        by_time = seconds / 3600 / self.max_hours if self.max_hours else -1.0
        if self.max_usd and usd is not None and usd / self.max_usd >= by_time:
            return f"--max-cost {self.max_usd:g}: {dollars(usd)} of {dollars(self.max_usd)} after {hours(seconds)}"
        price = "" if usd is None else f", {dollars(usd)}"
        return f"--max-hours {self.max_hours:g}: {hours(seconds)} of {hours(self.max_hours * 3600)}{price}"


def hours(seconds: float) -> str:
    """Format hours with two digits that tell, and at most three decimals: 12 h, 1.5 h, 0.014 h."""
    value = max(0.0, seconds) / 3600
    return f"{round(value, 3 if value < 0.1 else 2):g} h"


def dollars(usd: float) -> str:
    """Format US dollars: $12, $4.02, $0.0153."""
    return f"${usd:.2f}".removesuffix(".00") if usd >= 0.1 or usd == 0 else f"${usd:.4f}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Floors:
    """Lowest speeds with which a run on GPUs begins; 0: none is known, and the speed is only shown."""

    matmul_tflops: float = 0.0
    """Of one matrix product in half precision on each GPU, TFLOP/s."""
    allreduce_gb_s: float = 0.0
    """Bus bandwidth of an allreduce over all ranks, GB/s, as nccl-tests define it."""
    allreduce_mib: int = 256
    """Size of the tensor that is added up to measure it, MiB."""

    def __post_init__(self) -> None:
        for name in ("matmul_tflops", "allreduce_gb_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise SpecError(f"floors: {name} = {value!r}: must be 0 or more")
        if type(self.allreduce_mib) is not int or not 1 <= self.allreduce_mib <= 8192:
            raise SpecError(f"floors: allreduce_mib = {self.allreduce_mib!r}: must be a whole number from 1 to 8192")
