"""What a run has taken so far, over all its attempts: hours, and US dollars for its nodes; a file beside its state."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from agent.files.listing import read_regular
from agent.runs.directory import RunDirectory
from agent.spec import json_text
from agent.spec.states import STOP_GRACE_S

SPENT_FILE: Final = "spent.json"
NODE_MARGIN_S: Final = STOP_GRACE_S + 15.0
"""After a bound, before a node ends its ranks by itself: the supervisor has a stop's grace, its commands a moment."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spent:
    """What a run has taken. Times are in seconds since 1970."""

    seconds: float = 0.0
    usd: float | None = None
    """None where a price was not known in one of the attempts."""
    usd_per_hour: float | None = None
    """Of the nodes of the last attempt, and the master."""
    counted: float = 0.0
    """Until when this counts."""
    ends: float | None = None
    """When a bound is reached if the run goes on; None without a bound, and once the attempt has ended."""
    reached: str = ""
    """The bound that ended the last attempt, and what was spent; "" where none did."""

    def to_document(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return dataclasses.asdict(self)


def read(directory: RunDirectory) -> Spent | None:
    """Return what a run has taken; None for one that has not begun, or whose version did not count."""
    try:
        return Spent(**json_text.parse(read_regular(directory.path / SPENT_FILE)))
    except (OSError, ValueError, TypeError):
        return None


def write(directory: RunDirectory, spent: Spent) -> None:
    """Write what a run has taken. Raises OSError."""
    directory.write(directory.path / SPENT_FILE, json.dumps(spent.to_document()))


def settle(directory: RunDirectory, now: float) -> None:
    """Count the time in which the ranks of a lost supervisor may have run on: until now, or their nodes ended them."""
    spent = read(directory)
    if spent is None or spent.ends is None:
        return
    more_s = max(0.0, min(now, spent.ends + NODE_MARGIN_S) - spent.counted)
    more_usd = None if spent.usd_per_hour is None else spent.usd_per_hour * more_s / 3600
    usd = None if spent.usd is None or more_usd is None else spent.usd + more_usd
    write(directory, dataclasses.replace(spent, seconds=spent.seconds + more_s, usd=usd, counted=now, ends=None))
