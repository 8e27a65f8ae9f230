"""Limits of a run: hours, US dollars, the minimum speed of its GPUs, and how many lost workers are replaced.

Pure functions and values.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Final

from agent.errors import SpecError

NEAR: Final = 0.8
"""A run gets a warning when this share of a limit is used."""
MAX_REPLACEMENTS: Final = 100
"""Maximum for replaced workers per hour."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunLimits:
    """Limits of a run; 0: no limit. Time in the queue and time between attempts do not count."""

    max_hours: float = 0.0
    """Time from the start of the supervisor until the ranks have exited, summed over all attempts."""
    max_usd: float = 0.0
    """Cost of the workers and the master in that time, at on-demand prices."""

    def __post_init__(self) -> None:
        for name in ("max_hours", "max_usd"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise SpecError(f"bounds: {name} = {value!r}: must be a finite number of 0 or more")

    def __bool__(self) -> bool:
        return bool(self.max_hours or self.max_usd)

    def share(self, seconds: float, usd: float | None) -> float:
        """Return the used share of the nearer limit, 1 for all of it; 0 without a limit.

        `seconds` and `usd` are the amounts used. `usd` is None if the price is unknown. The limit of cost then does not
        count.
        """
        shares = [seconds / 3600 / self.max_hours] if self.max_hours else []
        shares += [usd / self.max_usd] if self.max_usd and usd is not None else []
        return max(shares, default=0.0)

    def left_s(self, seconds: float, usd: float | None, usd_per_hour: float | None) -> float:
        """Return the seconds until the nearer limit is reached (0 after that), or inf without a limit.

        The limit of cost does not count if `usd` or `usd_per_hour` is None.
        """
        left = [self.max_hours * 3600 - seconds] if self.max_hours else []
        if self.max_usd and usd is not None and usd_per_hour:
            left.append((self.max_usd - usd) / usd_per_hour * 3600)
        return max(0.0, min(left, default=math.inf))

    def describe(self, seconds: float, usd: float | None) -> str:
        """Return the limit with the largest used share, as text: `--max-cost 5: $4.02 of $5 after 1.5 h`.

        There must be a limit. `seconds` and `usd` are the amounts used. `usd` is None if the price is unknown.
        """
        by_time = seconds / 3600 / self.max_hours if self.max_hours else -1.0
        if self.max_usd and usd is not None and usd / self.max_usd >= by_time:
            return f"--max-cost {self.max_usd:g}: {dollars(usd)} of {dollars(self.max_usd)} after {hours(seconds)}"
        price = "" if usd is None else f", {dollars(usd)}"
        return f"--max-hours {self.max_hours:g}: {hours(seconds)} of {hours(self.max_hours * 3600)}{price}"


def hours(seconds: float) -> str:
    """Format seconds as hours with at most two decimals, or three below 0.1 h: 12 h, 1.5 h, 0.014 h."""
    value = max(0.0, seconds) / 3600
    return f"{round(value, 3 if value < 0.1 else 2):g} h"


def dollars(usd: float) -> str:
    """Format US dollars with cents, or with four decimals below $0.10: $12, $4.02, $0.0153."""
    return f"${usd:.2f}".removesuffix(".00") if usd >= 0.1 or usd == 0 else f"${usd:.4f}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Floors:
    """Minimum speeds: a run on GPUs starts only if its nodes reach them. 0: no known minimum, show the speed only."""

    matmul_tflops: float = 0.0
    """Speed of a half-precision matrix product on each GPU, TFLOP/s."""
    allreduce_gb_s: float = 0.0
    """Bus bandwidth of an allreduce over all ranks, GB/s, as nccl-tests defines it."""
    allreduce_mib: int = 256
    """Size of the tensor for that allreduce, MiB."""

    def __post_init__(self) -> None:
        for name in ("matmul_tflops", "allreduce_gb_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise SpecError(f"floors: {name} = {value!r}: must be a finite number of 0 or more")
        if type(self.allreduce_mib) is not int or not 1 <= self.allreduce_mib <= 8192:
            raise SpecError(f"floors: allreduce_mib = {self.allreduce_mib!r}: must be a whole number from 1 to 8192")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replacements:
    """The limit on replacements of lost or faulty workers by the master, and their Auto Scaling group."""

    group: str = ""
    """Name of the worker group. "": unknown, so no worker is replaced."""
    region: str = ""
    max_per_hour: int = 0
    """For the whole cluster. 0: no worker is replaced."""

    def __post_init__(self) -> None:
        if type(self.max_per_hour) is not int or not 0 <= self.max_per_hour <= MAX_REPLACEMENTS:
            rule = f"must be a whole number from 0 to {MAX_REPLACEMENTS}"
            raise SpecError(f"replacements: max_per_hour = {self.max_per_hour!r}: {rule}")
        if not isinstance(self.group, str) or not re.fullmatch(r"[!-9;-~]{0,255}", self.group):
            raise SpecError(f"replacements: group = {self.group!r}: must be the name of an Auto Scaling group")
        if not isinstance(self.region, str) or not re.fullmatch(r"[a-z0-9-]{0,30}", self.region):
            raise SpecError(f"replacements: region = {self.region!r}: must be a region such as us-east-1")

    def __bool__(self) -> bool:
        return bool(self.group and self.region and self.max_per_hour)
