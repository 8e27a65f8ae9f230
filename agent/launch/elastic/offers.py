"""The files between the supervisor of an elastic run and its launcher, on the master's own disk, where no rank writes.

The supervisor offers hosts, which it has prepared; the launcher tells how the ranks formed anew, which hosts
wait to join them, and which did not come to do so.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import open_to_append, write_atomically
from agent.spec.elastic import FirstStep
from agent.spec.nodes import Node

FOLDER: Final = ".deepcdk/elastic"
"""Below the login user's home: a directory for each run."""
_OFFERS: Final = "offers.json"
_EVENTS: Final = "events.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
    """A host on which the launcher may start ranks, once for each number."""

    node: Node
    number: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reformed:
    """How the ranks of a run formed anew."""

    time: float
    """When the launcher gave them their places, seconds since 1970."""
    why: str
    lost: tuple[str, ...]
    joined: tuple[str, ...]
    hosts: tuple[str, ...]
    """Those of the new round, in rank order."""
    ranks: int
    first: FirstStep | None = None
    """None where no step was reported."""

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON values, as a run's course has it."""
        first = self.first
        return {
            "time": round(self.time, 3),
            "for": self.why,
            "lost": list(self.lost),
            "joined": list(self.joined),
            "hosts": list(self.hosts),
            "ranks": self.ranks,
            "step": first.step if first else None,
            "steps_lost": first.steps_lost if first else None,
            "seconds": round(first.seconds, 3) if first else None,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiting:
    """A host all of whose ranks wait for a place; the others take it in after their next step or commit."""

    instance_id: str

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"waits": self.instance_id}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unjoined:
    """A host that was lost, or turned away, before it had a place among the others."""

    instance_id: str
    for_good: bool
    """Whether it would be so again."""

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"unjoined": self.instance_id, "for_good": self.for_good}


def folder_of(run_id: str) -> Path:
    """Return the directory of a run's files."""
    return Path.home() / FOLDER / run_id


def write_offers(folder: Path, offers: Sequence[Offer]) -> None:
    """Offer these hosts, and no others any more."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    document = [{"node": dataclasses.asdict(each.node), "number": each.number} for each in offers]
    write_atomically(folder / _OFFERS, json.dumps(document))


def read_offers(folder: Path) -> list[Offer]:
    """Return the hosts that are offered, in rank order. Raises OSError."""
    document = json.loads((folder / _OFFERS).read_text(encoding="utf-8"))
    return [Offer(node=Node(**each["node"]), number=each["number"]) for each in document]


def tell(folder: Path, event: Reformed | Waiting | Unjoined) -> None:
    """Append an event."""
    with open_to_append(folder / _EVENTS) as file:
        file.write(json.dumps(event.to_document()).encode() + b"\n")


def read_told(folder: Path, after: int) -> list[Mapping[str, Any]]:
    """Return what has been told, without the first `after` of it."""
    try:
        lines = (folder / _EVENTS).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[after:]]
