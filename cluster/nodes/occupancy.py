"""Which nodes the live runs occupy, and how many nodes the cluster needs for one more run."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from agent.spec.nodes import MASTER_NAME, RULES, WORKER_PREFIX, Node, workers
from cluster.errors import LiveRunError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Occupancy:
    """The live runs of a cluster with their nodes, and the queued runs."""

    hosts: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Names of the nodes of each live run, by run id, oldest first."""
    queued: tuple[str, ...] = ()
    """Ids of the queued runs, the next one first."""

    starters: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """Who started each live run, by run id, if that is known."""
    replaced: tuple[Mapping[str, Any], ...] = ()
    """The workers that the master had replaced, or could not, in the last day, oldest first."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Occupancy:
        """Build the occupancy from the supervisor's checked answer: `live`, `queued`, and perhaps `replaced`."""
        hosts = {str(run["run_id"]): tuple(map(str, run["hosts"])) for run in document["live"]}
        starters = {str(run["run_id"]): run["started_by"] for run in document["live"] if run.get("started_by")}
        replaced = tuple(document.get("replaced") or ())
        return cls(hosts=hosts, queued=tuple(map(str, document["queued"])), starters=starters, replaced=replaced)

    @property
    def live(self) -> tuple[str, ...]:
        """Return the ids of the live runs, oldest first."""
        return tuple(self.hosts)

    @property
    def taken(self) -> int:
        """Return how many nodes live runs occupy."""
        return sum(map(len, self.hosts.values()))

    def run_on(self, name: str) -> str:
        """Return the id of the live run on this node; "" if the node is free."""
        return next((run_id for run_id, hosts in self.hosts.items() if name in hosts), "")

    def choice(self, nodes: Sequence[Node], count: int, *, queueing: bool) -> tuple[Node, ...]:
        """Return the candidates for the nodes of a new run on `count` workers: all of `nodes` without a live run.

        They may be more or fewer than `count`. With `queueing`, return all nodes if too few are free. The master
        chooses again when the run's turn comes.
        """
        free = tuple(node for node in nodes if not self.run_on(node.name))
        return tuple(nodes) if queueing and len(workers(free)) < count else free

    def size_for(self, count: int, there: int, *, queueing: bool) -> int:
        """Return how many workers the cluster needs so that a run on `count` workers can start.

        `there` is how many it has or is starting. With `queueing`, the result is `count`, because the run may wait for
        the nodes of other runs. Without `queueing`, it is `count` plus the nodes of live runs. LiveRunError is raised
        if other runs are queued, or if there are live runs and the cluster would have to grow. The user may not know of
        these runs and must decide.
        """
        if queueing:
            return count
        if self.queued:
            raise LiveRunError(self.queued[0], queued=True, hosts=self.hosts)
        size = self.taken + count
        if self.hosts and there < size:
            raise LiveRunError(self.live[0], hosts=self.hosts, size=size)
        return size


def describe_replacement(replaced: Mapping[str, Any]) -> str:
    """Describe in one line that a worker was replaced and why, or that it could not be replaced.

    `replaced` is from the master's checked answer or a run's record.
    """
    at = datetime.datetime.fromtimestamp(float(replaced["time"]), datetime.UTC)
    done = f"was not replaced ({replaced['trouble']})" if replaced["trouble"] else "was replaced"
    return f"{replaced['node']} ({replaced['instance_id']}) {done} at {at:%H:%M} UTC: {replaced['reason']}"


def describe_runs(run_ids: Sequence[str]) -> str:
    """Name runs by their ids, as in "run A" or "runs A, B"."""
    return f"run{'s' if run_ids[1:] else ''} {', '.join(run_ids)}"


def shortened(names: Sequence[str]) -> str:
    """Return workers' names in short form, sorted, with ranges: worker1-3, worker7; "" without workers.

    The master and invalid names are left out, because a rank can write any name into its run's state.
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
