"""Poll until something has happened or the time is over.

Not stamina: it repeats calls that raise, with growing pauses, while these loops look at a state until it has changed;
and its import takes 0.11 s of the 0.45 s that `fab --list` may take. boto3 itself repeats calls of AWS that fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic, sleep


def poll(timeout_s: float, *, every_s: float) -> Iterator[float]:
    """Yield the seconds passed: 0 at first, then after each pause, for the last time once `timeout_s` is over."""
    began, passed_s = monotonic(), 0.0
    while True:
        yield passed_s
        if passed_s >= timeout_s:
            return
        sleep(every_s)
        passed_s = monotonic() - began
