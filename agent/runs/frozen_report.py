"""What a node has seen of ranks that were frozen: a file of its own in the run's directory, for the supervisor.

The user for ranks writes it, so that a rank can write another: that makes a wrong reason for the end of its own run,
and nothing more. What is read has rules, and where a rank ran the spec says.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

from agent.files.atomic_write import write_atomically
from agent.files.listing import names_in
from agent.files.regular_file import read_regular
from agent.runs.directory import RunDirectory
from agent.spec import json_text
from agent.spec.nodes import Node

STATES: Final = {"T": "stopped"}
"""The states of a frozen process, in words."""
MOST_BYTES: Final = 1 << 16
_MOST_SECONDS: Final = 1e7
_PLAIN: Final = re.compile(r"[\w.,:/() +\[\]-]{0,200}", flags=re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrozenRank:
    """One rank that was frozen. Raises ValueError for what none is."""

    rank: int | None
    """None for what starts the ranks of the node."""
    pid: int
    name: str
    """Of the process that was stopped; the rank's own, or one that it started."""
    state: str
    """One of STATES."""
    since: float
    """When it was first seen so, in seconds since 1970, by the node's clock."""
    seconds: float
    """How long without a break, before it was killed."""
    threads: int
    waits: str = ""
    """Where in the kernel its threads waited, as `14 in do_signal_stop`; "" where it did not say."""

    def __post_init__(self) -> None:
        if self.rank is not None and (type(self.rank) is not int or self.rank < 0):
            raise ValueError(f"rank = {self.rank!a}")
        if any(type(number) is not int or number < 0 for number in (self.pid, self.threads)):
            raise ValueError("pid and threads must be whole numbers")
        for number in (self.since, self.seconds):
            if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
                raise ValueError("since and seconds must be numbers")
        if not 0 <= self.seconds <= _MOST_SECONDS:
            raise ValueError("seconds must be how long it was frozen")
        if not isinstance(self.state, str) or self.state not in STATES:
            raise ValueError(f"state = {self.state!a}")
        if not all(isinstance(text, str) for text in (self.name, self.waits)):
            raise ValueError("name and waits must be texts")

    def to_document(self) -> dict[str, Any]:
        """Return this as JSON values, its texts without what could not be shown."""
        return {**dataclasses.asdict(self), "name": _plain(self.name), "waits": _plain(self.waits)}

    def __str__(self) -> str:
        """Return which process it was, as `rank 3, process 812 (python3), 14 threads: 14 in do_signal_stop`."""
        who = "what starts the ranks" if self.rank is None else f"rank {self.rank}"
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        waits = f": {_plain(self.waits)}" if self.waits else ""
        return f"{who}, process {self.pid} ({_plain(self.name)}), {threads}{waits}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrozenNode:
    """What one node has seen."""

    node: str
    ranks: tuple[FrozenRank, ...]


def write(directory: RunDirectory, attempt: int, node: str, ranks: Sequence[FrozenRank]) -> None:
    """Write what a node has seen in this attempt of the run. Raises OSError."""
    document = {"ranks": [each.to_document() for each in ranks]}
    write_atomically(directory.path / _name(attempt, node), json.dumps(document, indent=1))


def read(directory: RunDirectory, hosts: Sequence[Node]) -> list[FrozenNode]:
    """Return what the hosts have seen in the last attempt of a run, in their order; nothing of what breaks a rule."""
    attempt, names, first, found = directory.attempt, names_in(directory.path), 0, []
    for host in hosts:
        theirs = range(first, first + host.slots)
        first += host.slots
        if (name := _name(attempt, host.name)) not in names:
            continue
        try:
            document = json_text.parse(read_regular(directory.path / name, MOST_BYTES))
            ranks = {each["rank"]: FrozenRank(**each) for each in document["ranks"]}
        except (OSError, ValueError, TypeError, KeyError):
            continue
        known = tuple(each for rank, each in ranks.items() if rank is None or rank in theirs)
        if known:
            ordered = sorted(known, key=lambda each: -1 if each.rank is None else each.rank)
            found.append(FrozenNode(node=host.name, ranks=tuple(ordered)))
    return found


def _name(attempt: int, node: str) -> str:
    return f"frozen-{attempt}-{node}.json"


def _plain(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else ascii(text)[1:-1][:200]
