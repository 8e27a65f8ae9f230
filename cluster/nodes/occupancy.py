"""Which live runs have which nodes, and how many nodes the cluster needs for another run beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from agent.spec.nodes import MASTER_NAME, RULES, WORKER_PREFIX, Node, workers
from cluster.errors import LiveRunError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Occupancy:
    """The live runs of a cluster, and those that wait."""

    hosts: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """By the id of each live run, oldest first: the names of its nodes."""
    queued: tuple[str, ...] = ()
    """Ids of the runs that wait, the next one first."""

    starters: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """By the id of each live run: who started it, where that is known."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Occupancy:
        """Build it from the supervisor's checked answer."""
        hosts = {str(run["run_id"]): tuple(map(str, run["hosts"])) for run in document["live"]}
        starters = {str(run["run_id"]): run["started_by"] for run in document["live"] if run.get("started_by")}
        return cls(hosts=hosts, queued=tuple(map(str, document["queued"])), starters=starters)

    @property
    def live(self) -> tuple[str, ...]:
        """Return the ids of the live runs, oldest first."""
        return tuple(self.hosts)

    @property
    def taken(self) -> int:
        """Return how many nodes live runs have."""
        return sum(map(len, self.hosts.values()))

    def run_on(self, name: str) -> str:
        """Return the id of the live run that has the node of this name, "" where it is free."""
        return next((run_id for run_id, hosts in self.hosts.items() if name in hosts), "")

    def choice(self, nodes: Sequence[Node], count: int, *, queueing: bool) -> tuple[Node, ...]:
        """Return the nodes among which the hosts of a run are chosen: the free ones.

        With `queueing` all of them where too few are free: the master chooses anew when the run's turn comes.
        """
        free = tuple(node for node in nodes if not self.run_on(node.name))
        return tuple(nodes) if queueing and len(workers(free)) < count else free

    def size_for(self, count: int, there: int, *, queueing: bool) -> int:
        """Return how many workers the cluster needs for a run on `count` nodes to begin.

        `there` is how many it has or is starting. With `queueing` the run waits for nodes of others. Without, raises
        LiveRunError where others wait, and where the cluster would have to grow since live runs have its nodes: that is
        for the user to say, who may not know of them.
        """
        if queueing:
            return count
        if self.queued:
            raise LiveRunError(self.queued[0], queued=True, hosts=self.hosts)
        size = self.taken + count
        if self.hosts and there < size:
            raise LiveRunError(self.live[0], hosts=self.hosts, size=size)
        return size


def describe_runs(run_ids: Sequence[str]) -> str:
    """Return runs by their ids, in words."""
    return f"run{'s' if run_ids[1:] else ''} {', '.join(run_ids)}"


def shortened(names: Sequence[str]) -> str:
    """Return the names of workers without their common beginning, neighbours as a range: worker1-3, worker7.

    What is no worker's name is left out: a rank can write any into its run's state.
    """
    good = (name for name in names if RULES["name"].fits(name) and name != MASTER_NAME)
    numbers = sorted(int(name.removeprefix(WORKER_PREFIX)) for name in good)
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return ", ".join(f"worker{first}" + (f"-{last}" if last > first else "") for first, last in spans)
