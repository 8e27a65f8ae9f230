"""Bring the worker group to a size: ask, grow or shrink it, and wait until it has that size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.spec.nodes import workers
from agent.spec.states import QUEUED, STOP_GRACE_S
from cluster.aws import inventory
from cluster.aws.inventory import Inventory
from cluster.aws.pricing import as_of, shown, total_per_hour
from cluster.cli.numbers import parse_whole
from cluster.errors import LiveRunError
from cluster.nodes import shrink, worker_group
from cluster.nodes.grow import ensure_nodes
from cluster.runs.supervisor import Supervisor
from cluster.session import Session, confirm
from cluster.ssh.master import Master
from cluster.terminal.status_line import interruptible
from stacks.config import WORKER


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleResult:
    """How the worker group has changed."""

    before: int
    after: int
    added: tuple[str, ...]
    """Names of the nodes that joined."""
    removed: tuple[str, ...]
    """Names of the nodes that went; the id of an instance that had never joined."""
    stopped_run: str
    """Id of the run that was stopped before, "" without one."""
    nodes: tuple[str, ...]
    """Names of the workers now."""
    usd_per_hour_before: float | None
    """All instances together, the master included; None if a price is unknown."""
    usd_per_hour: float | None

    def __str__(self) -> str:
        """Return one line on the change."""
        if self.before == self.after and not self.added and not self.removed:
            return f"workers: {self.after}, as before"
        price = f", instances together {shown(self.usd_per_hour_before)} -> {shown(self.usd_per_hour)}"
        changes = [*(f"+{name}" for name in self.added), *(f"-{name}" for name in self.removed)]
        return f"workers: {self.before} -> {self.after} ({', '.join(changes)}){price}"


def parse_size(text: str) -> int:
    """Parse the size given to `fab scale`, before the cluster is known. Raises UsageError that names the rule."""
    return parse_whole("--nodes", text, lowest=0)


def scale(
    session: Session,
    master: Master,
    supervisor: Supervisor,
    wanted: int,
    *,
    yes: bool,
    force: bool,
    report: Callable[[str], None],
) -> ScaleResult:
    """Bring the group to `wanted` workers, after asking; a live run keeps its nodes unless forced.

    Raises BusyNodesError, NotReadyError, or DeepcdkError if the answer is no.
    """
    names = {node.name for node in workers(session.nodes(master))}
    before = inventory.refresh(session.aws, session.stack)
    there = shrink.remaining(before)
    stopped = ""
    removed: tuple[shrink.Removal, ...] = ()
    if wanted < len(there):
        removed, stopped = _shrink(session, master, supervisor, wanted, yes=yes, force=force, report=report)
        with interruptible("\nthe nodes terminate all the same; `fab status` shows what is left", report):
            nodes = shrink.wait_gone(session.aws, master, session.stack, removed, report=report)
    else:
        if before.desired_workers > wanted:
            # The group has not started all it wants, so nothing that runs would be terminated. The size was read just
            # before: what another machine sets in the tenths of a second between is overwritten.
            worker_group.resize(session.aws, session.stack, wanted)
        nodes = ensure_nodes(session, master, wanted, yes=yes, report=report)
    now = inventory.refresh(session.aws, session.stack)
    return ScaleResult(
        before=len(there),
        after=len(shrink.remaining(now)),
        added=tuple(node.name for node in workers(nodes) if node.name not in names),
        removed=tuple(removal.name for removal in removed),
        stopped_run=stopped,
        nodes=tuple(node.name for node in workers(nodes)),
        usd_per_hour_before=_cost(session, before),
        usd_per_hour=_cost(session, now),
    )


def _shrink(
    session: Session,
    master: Master,
    supervisor: Supervisor,
    wanted: int,
    *,
    yes: bool,
    force: bool,
    report: Callable[[str], None],
) -> tuple[tuple[shrink.Removal, ...], str]:
    """Terminate workers down to `wanted`; return them, and the id of the run that was stopped before.

    Group and runs are read again after the answer, and the question is asked again if other workers would have to go,
    such as nodes that another machine has started meanwhile.
    """

    def choose() -> tuple[Inventory, tuple[shrink.Removal, ...], str]:
        found = inventory.refresh(session.aws, session.stack)
        live = supervisor.live()
        busy = {live: tuple(map(str, supervisor.status(live)["hosts"]))} if live else {}
        removals = shrink.choose(shrink.remaining(found), session.nodes(master), busy, wanted, force=force)
        return found, removals, live if {removal.name for removal in removals} & set(busy.get(live, ())) else ""

    found, removals, run_id = choose()
    for line in starving_runs(supervisor.runs(), wanted):
        report(line)
    agreed: frozenset[str] = frozenset()
    while not {removal.instance_id for removal in removals} <= agreed:
        there = shrink.remaining(found)
        if agreed:
            report(f"the worker group has changed meanwhile: it has {len(there)} nodes")
        kind = there[0].type
        each = session.prices.per_hour([kind], wait_s=3.0)[kind]
        dated = as_of(session.prices.dated([kind]))
        less = f", {shown(None if each is None else each * len(removals))} less{dated}"
        stopping = f", stopping run {run_id} first," if run_id else ""
        listed = ", ".join(removal.name for removal in removals)
        confirm(
            f"shrink the worker group from {len(there)} to {wanted} nodes{stopping} by terminating {listed}{less}.",
            yes=yes,
        )
        agreed = frozenset(removal.instance_id for removal in removals)
        found, removals, live_now = choose()  # A run may have started while the question was open.
        if live_now not in ("", run_id):
            raise LiveRunError(live_now)
        run_id = live_now
    if not removals:
        report(f"the worker group has shrunk to {len(shrink.remaining(found))} nodes meanwhile")
        return (), ""
    if run_id:
        report(f"stopping run {run_id}, with {STOP_GRACE_S:g} s for its checkpoint")
        supervisor.stop(run_id, STOP_GRACE_S)
    report(f"terminating {', '.join(removal.name for removal in removals)}")
    shrink.terminate(session.aws, session.stack, found, removals)
    return removals, run_id


def starving_runs(runs: Sequence[Mapping[str, Any]], workers_left: int) -> list[str]:
    """Return a warning for each queued run that needs more nodes than will be left."""
    waiting = [run for run in runs if run["state"] == QUEUED and len(run["hosts"]) > workers_left]
    return [
        f"warning: run {run['run_id']} waits in the queue for {len(run['hosts'])} nodes, and fails when its turn comes "
        f"and they are not there; `fab stop --run {run['run_id']}` takes it out"
        for run in waiting
    ]


def _cost(session: Session, found: Inventory) -> float | None:
    kinds = [i.type for i in found.instances if i.role != WORKER or i in shrink.remaining(found)]
    return total_per_hour(kinds, session.prices.per_hour(kinds, wait_s=1.0))
