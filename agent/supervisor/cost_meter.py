"""Count the time and cost of a run, and detect that a limit is near or reached."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable
from typing import Final

from agent.runs import run_cost
from agent.runs.run_cost import Spent
from agent.runs.run_directory import RunDirectory
from agent.spec.run import RunSpec
from agent.spec.run_limits import NEAR, RunLimits

WRITE_S: Final = 5.0
UNPRICED: Final = (
    "--max-cost cannot be checked, because the price of the run's nodes is unknown; to continue with a limit of time: "
    "`fab resume --max-cost none --max-hours HOURS`"
)


class Meter:
    """Count the time and cost of a run while its supervisor works, beginning with the amounts in spent.json.

    `clock` is a monotonic clock in seconds. `now` is the time of day, which other nodes read in spent.json.
    """

    def __init__(
        self,
        directory: RunDirectory,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._clock, self._now = directory, clock, now
        before = run_cost.read_spent(directory) or Spent(usd=0.0)
        self._spent = dataclasses.replace(before, usd_per_hour=None, ends=None, reached="")
        self._bounds = RunLimits()
        self._last, self._written = clock(), -math.inf
        self._is_warned = self._is_priced = False

    def take(self, spec: RunSpec) -> None:
        """Set the limits and the price for the next attempt, and write spent.json.

        The time since the last update is charged at the previous price. If the new price is unknown, so is the cost
        from now on. If a limit is near at the first call, `look` does not warn: the user who resumes the run has been
        warned.
        """
        self._advance()
        price = run_cost.highest_usd_per_hour(self._directory, json.loads(spec.to_json()))
        begins = not self._is_priced
        self._bounds, self._is_priced = spec.bounds, True
        usd = None if price is None else self._spent.usd
        self._spent = dataclasses.replace(self._spent, usd_per_hour=price, usd=usd)
        if begins:  # A user who resumes a run near its limit has already been warned.
            self._is_warned = self._share >= NEAR
        self.write()  # before ranks start, because their nodes read the file

    def look(self) -> tuple[str, str]:
        """Update the time and cost. Return a warning, and the reason to stop the run; each may be "".

        The warning is returned once, when a limit is near. The reason is a limit that was reached, or a --max-cost that
        cannot be enforced. Also writes spent.json if its last write was WRITE_S seconds ago.
        """
        self._advance()
        if self._clock() - self._written >= WRITE_S:
            self.write()
        if not self._bounds:
            return "", ""
        if self._bounds.max_usd and self._spent.usd is None:
            return "", UNPRICED
        share, told = self._share, self._bounds.describe(self._spent.seconds, self._spent.usd)
        if share >= 1:
            return "", f"reached {told}"
        if share < NEAR or self._is_warned:
            return "", ""
        self._is_warned = True
        return f"{NEAR:.0%} of a limit is used, {told}; at the limit the run is stopped, as by `fab stop`", ""

    def write(self, reached: str = "", *, ended: bool = False) -> None:
        """Write spent.json, with the time of day when a limit will be reached. Write errors are ignored.

        `reached` is the limit that stopped the run, or "". `ended`: no ranks of this attempt are left, so that time is
        left out.
        """
        self._advance()
        left_s = self._bounds.left_s(self._spent.seconds, self._spent.usd, self._spent.usd_per_hour)
        now = self._now()
        ends = None if ended or not math.isfinite(left_s) else now + left_s
        self._spent = dataclasses.replace(self._spent, counted=now, ends=ends, reached=reached)
        self._written = self._clock()
        with contextlib.suppress(OSError):
            run_cost.write_spent(self._directory, self._spent)

    @property
    def _share(self) -> float:
        return self._bounds.share(self._spent.seconds, self._spent.usd)

    def _advance(self) -> None:
        now = self._clock()
        passed_s, self._last = now - self._last, now
        price, usd = self._spent.usd_per_hour, self._spent.usd
        if usd is not None and price is not None:
            usd += price * passed_s / 3600
        self._spent = dataclasses.replace(self._spent, seconds=self._spent.seconds + passed_s, usd=usd)
