"""The time and money that a run has spent in all its attempts. They are stored in spent.json in its directory."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from agent.files.safe_read import read_regular
from agent.runs.run_directory import RunDirectory
from agent.spec import untrusted_json
from agent.spec.run_states import STOP_GRACE_S

SPENT_FILE: Final = "spent.json"
NODE_MARGIN_S: Final = STOP_GRACE_S + 15.0
"""Seconds after a limit is reached until a node terminates its ranks without the supervisor. The supervisor acts first:
it needs the grace period of a stop, and some time for its commands."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spent:
    """The time and money that a run has spent, over all attempts. Times of day are in seconds since 1970."""

    seconds: float = 0.0
    usd: float | None = None
    """Cost of the nodes and the master; None if a price was unknown in one of the attempts."""
    usd_per_hour: float | None = None
    """Price of the nodes of the last attempt and the master; None if it is unknown."""
    counted: float = 0.0
    """The time until which `seconds` and `usd` are counted."""
    ends: float | None = None
    """When a limit will be reached if the run continues; None without a limit, and after the attempt has ended."""
    reached: str = ""
    """The limit that stopped the last attempt, with the amount spent; "" if no limit did."""

    def to_document(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)


def read(directory: RunDirectory) -> Spent | None:
    """Return what a run has spent; None if it has not started, or if spent.json is missing or malformed."""
    try:
        return Spent(**untrusted_json.parse(read_regular(directory.path / SPENT_FILE)))
    except (OSError, ValueError, TypeError):
        return None


def write(directory: RunDirectory, spent: Spent) -> None:
    """Write what a run has spent. Raises OSError."""
    directory.write(directory.path / SPENT_FILE, json.dumps(spent.to_document()))


def settle(directory: RunDirectory, now: float) -> None:
    """Count the time and cost of ranks that continued after their supervisor was lost, and write them to spent.json.

    The time ends at `now` (seconds since 1970), or when the nodes terminated the ranks because a limit was reached
    (NODE_MARGIN_S). Does nothing for a run without a limit, and if its last attempt has ended. Raises OSError.
    """
    spent = read(directory)
    if spent is None or spent.ends is None:
        return
    more_s = max(0.0, min(now, spent.ends + NODE_MARGIN_S) - spent.counted)
    more_usd = None if spent.usd_per_hour is None else spent.usd_per_hour * more_s / 3600
    usd = None if spent.usd is None or more_usd is None else spent.usd + more_usd
    write(directory, dataclasses.replace(spent, seconds=spent.seconds + more_s, usd=usd, counted=now, ends=None))
