"""What each restart of a run has cost: the steps that were made again, and the time until the next one.

Taken from the events that rank 0 appends to metrics.jsonl, those of a recipe or of any program that writes the same
ones. Only what they tell is known: a step that ended after the last that was told, within half a second of a recipe's
training, is counted neither as made nor as lost.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent.spec.states import LAST_TIME

MOST_STEPS: Final = 1 << 53
MAX_EPOCHS: Final = 1 << 16
"""Epochs of a run whose ends are kept, and starts."""
_CHECKPOINT: Final = re.compile(r"step-(\d{1,15})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestartCost:
    """What one restart has cost; None where nothing tells, as while no step has ended since."""

    went_on_at: int | None = None
    """Steps that the run had made where it went on."""
    steps_lost: int | None = None
    """Steps that had been told before, and were made again."""
    seconds: float | None = None
    """From the last step that was told before to the first one told after, s."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Told:
    """A start, or the end of a step, at a time in seconds since 1970; `steps`: how many had been made by then."""

    is_start: bool
    time: float
    steps: int | None


def restart_costs(events: Iterable[Mapping[str, Any]], restarts: Sequence[Mapping[str, Any]]) -> list[RestartCost]:
    """Return what each restart of a run has cost, by the events of its metrics. Ranks may write anything there."""
    told = _told(events)
    starts = [place for place, each in enumerate(told) if each.is_start]
    times = [_moment(each.get("time")) for each in restarts]
    found = []
    for began, later in zip(times, [*times[1:], None], strict=False):
        start = next((place for place in starts if began is not None and told[place].time > began), None)
        # Where the next fault came before the ranks had started, what both have cost is counted there.
        too_late = start is not None and later is not None and told[start].time >= later
        found.append(RestartCost() if start is None or too_late else _recovery(told, start))
    return found


def _recovery(told: Sequence[_Told], start: int) -> RestartCost:
    """Return what it cost until the ranks that start at a place among the events had made a step."""
    at, after = told[start].steps, next(iter(told[start + 1 :]), None)
    before = next((each for each in reversed(told[:start]) if not each.is_start), None)
    if before is None or (after and after.is_start):  # The next one counts what was lost before both.
        return RestartCost(went_on_at=at)
    lost = None if before.steps is None or at is None else max(0, before.steps - at)
    return RestartCost(went_on_at=at, steps_lost=lost, seconds=_between(before, after) if after else None)


def _between(before: _Told, after: _Told) -> float:
    """Return the time between two steps, s: none where the clock of the later one's node is behind."""
    return max(0.0, round(after.time - before.time, 3))


def _told(events: Iterable[Mapping[str, Any]]) -> list[_Told]:
    """Return starts, and of the steps between two of them the first and the last, with the number of steps made.

    A step tells that number within its epoch alone.
    """
    found: list[_Told] = []
    ends = {0: 0}
    for event in events:
        kind, time = event.get("event"), _moment(event.get("time"))
        steps = _steps(event.get("total_steps"))
        if time is None or kind not in ("start", "step", "epoch"):
            continue
        epoch, step = _steps(event.get("epoch")), _steps(event.get("step"))
        if kind == "start" and steps is None:
            resumed = event.get("resumed_from")
            name = _CHECKPOINT.search(resumed) if isinstance(resumed, str) else None
            steps = int(name[1]) if name else 0
        if kind == "step" and steps is None and epoch and step is not None and epoch - 1 in ends:
            steps = ends[epoch - 1] + step
        if kind == "epoch" and epoch is not None and steps is not None and len(ends) < MAX_EPOCHS:
            ends[epoch] = steps
        told = _Told(is_start=kind == "start", time=time, steps=steps)
        if not told.is_start and len(found) > 1 and not (found[-1].is_start or found[-2].is_start):
            found[-1] = told
        elif len(found) < 3 * MAX_EPOCHS:
            found.append(told)
    return found


def _moment(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known and 0 <= value <= LAST_TIME else None  # type: ignore[operator,arg-type]  # checked


def _steps(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_STEPS else None
