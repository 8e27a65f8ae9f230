"""Creation signals: how many a resource waits for, and when it has succeeded or failed."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Mapping
from typing import Any

_DEFAULT_TIMEOUT = "PT5M"
_DURATION = re.compile(r"P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")


def parse_duration(value: str) -> float | None:
    """Return an ISO 8601 duration in seconds (`PT1H5M` is 3900.0), or None if it is invalid.

    isodate does not fit: it accepts signs, weeks, years, fractions and `P1DT`, which CloudFormation rejects.
    """
    match = _DURATION.fullmatch(value)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wait:
    """The signals that a resource waits for, and their deadline."""

    count: int
    """Expected number of signals, successes and failures together."""
    needed: int
    """Required number of successes: less than `count` if MinSuccessfulInstancesPercent is below 100."""
    percent: int
    deadline: float
    """Monotonic time, seconds."""

    def left_s(self) -> float:
        """Return the seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    def verdict(self, signals: Mapping[str, str]) -> str | None:
        """Return "" for success, a reason for failure, or None if neither is certain yet.

        `signals`: the status of each signal (SUCCESS or FAILURE) by its UniqueId.
        """
        successes = sum(status == "SUCCESS" for status in signals.values())
        failures = sum(status == "FAILURE" for status in signals.values())
        if successes >= self.needed:
            return ""
        rule = f"Unable to satisfy {self.percent}% MinSuccessfulInstancesPercent requirement"
        if failures > self.count - self.needed:
            return f"Received {failures} FAILURE signal(s) out of {self.count}.  {rule}"
        if self.left_s() == 0:
            if not signals:
                return f"Failed to receive {self.count} resource signal(s) within the specified duration"
            return f"Received {successes} SUCCESS signal(s) out of {self.count}.  {rule}"
        return None


def creation_wait(declaration: Mapping[str, Any]) -> Wait | None:
    """Return the signals that a new resource's CreationPolicy requires from now on, or None if it requires none.

    `declaration` is the resource's section of the template.
    """
    policy = declaration.get("CreationPolicy") or {}
    signal = policy.get("ResourceSignal")
    if signal is None:
        return None
    count = int(signal.get("Count", 1))
    if count == 0:
        return None
    percent = int((policy.get("AutoScalingCreationPolicy") or {}).get("MinSuccessfulInstancesPercent", 100))
    return signal_wait(count, str(signal.get("Timeout", _DEFAULT_TIMEOUT)), percent)


def signal_wait(count: int, timeout: str, percent: int = 100) -> Wait:
    """Return the condition that `count` signals arrived, at least `percent` percent of them successes. Does not wait.

    `timeout` is an ISO 8601 duration from now (300 s if it is invalid).
    """
    seconds = parse_duration(timeout)
    return Wait(
        count=count,
        needed=math.ceil(count * percent / 100),
        percent=percent,
        deadline=time.monotonic() + (seconds if seconds is not None else 300.0),
    )
