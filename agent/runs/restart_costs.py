"""The cost of each restart of a run: the repeated steps, and the time until the next new step.

It is computed from the events in metrics.jsonl, which rank 0 writes. They come from a recipe, or from any program that
writes the same events. Steps without an event are unknown. A recipe writes an event at most every half second, so steps
after its last event count neither as completed nor as lost.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent.spec.run_states import LAST_TIME

MOST_STEPS: Final = 1 << 53
MAX_EPOCHS: Final = 1 << 16
"""Maximum number of epochs and starts of a run that are kept in memory."""
_CHECKPOINT: Final = re.compile(r"step-(\d{1,15})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestartCost:
    """The cost of one restart. A field is None if it is unknown, for example before the next step has ended."""

    went_on_at: int | None = None
    """Number of steps in the checkpoint that the run continued from."""
    steps_lost: int | None = None
    """Number of steps that were completed before the restart and had to be repeated."""
    seconds: float | None = None
    """Seconds from the last event before the restart to the first step after it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Told:
    """An event: a start, or the end of a step or epoch. `time` is in seconds since 1970.

    `steps` is the number of steps completed by then, in all epochs.
    """

    is_start: bool
    time: float
    steps: int | None


def restart_costs(events: Iterable[Mapping[str, Any]], restarts: Sequence[Mapping[str, Any]]) -> list[RestartCost]:
    """Return the cost of each restart in `restarts`, which are those of the run's timeline, in order.

    `events` are the run's metrics; malformed ones are ignored.
    If the next restart came before the ranks had started, the cost is unknown, and the next restart includes it.
    """
    told = _told(events)
    starts = [place for place, each in enumerate(told) if each.is_start]
    times = [_moment(each.get("time")) for each in restarts]
    found = []
    for began, later in zip(times, [*times[1:], None], strict=False):
        start = next((place for place in starts if began is not None and told[place].time > began), None)
        # If the next fault came before the ranks had started, the next restart counts the cost of both.
        too_late = start is not None and later is not None and told[start].time >= later
        found.append(RestartCost() if start is None or too_late else _recovery(told, start))
    return found


def _recovery(told: Sequence[_Told], start: int) -> RestartCost:
    """Return the cost of a restart. `start` is the index of its start event in `told`.

    Fields stay None if the events before or after it do not show them.
    """
    at, after = told[start].steps, next(iter(told[start + 1 :]), None)
    before = next((each for each in reversed(told[:start]) if not each.is_start), None)
    if before is None or (after and after.is_start):  # The next restart counts the cost of both.
        return RestartCost(went_on_at=at)
    lost = None if before.steps is None or at is None else max(0, before.steps - at)
    return RestartCost(went_on_at=at, steps_lost=lost, seconds=_between(before, after) if after else None)


def _between(before: _Told, after: _Told) -> float:
    """Return the seconds between two events; 0 if the clock of the later event's node is behind."""
    return max(0.0, round(after.time - before.time, 3))


def _told(events: Iterable[Mapping[str, Any]]) -> list[_Told]:
    """Return all starts, and the first and the last step or epoch between two of them.

    Each has the number of steps completed by then. A `step` event may contain only the number within its epoch. The
    number at the end of the epoch before is added. Other and malformed events are left out.
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
