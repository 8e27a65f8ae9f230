"""Bring the worker group to a size: ask, grow or shrink it, and wait until it has that size."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from agent.spec.nodes import Node, workers
from agent.spec.run_states import QUEUED
from cluster.aws import inventory
from cluster.aws.inventory import Inventory
from cluster.aws.prices import as_of, shown, total_per_hour
from cluster.errors import LiveRunError
from cluster.nodes import shrink, worker_group
from cluster.nodes.grow import GroupTask, ensure_nodes
from cluster.nodes.occupancy import describe_runs
from cluster.runs.run_owner import describe_others
from cluster.session import Session
from cluster.terminal.confirmation import confirm
from cluster.terminal.status_line import interruptible
from stacks.config import WORKER


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleResult:
    """Result of `scale`: how the worker group has changed."""

    before: int
    after: int
    """Number of workers. Workers that are terminating or leave the group are not counted."""
    added: tuple[str, ...]
    """Names of the nodes that joined."""
    removed: tuple[str, ...]
    """Names of the terminated nodes, or instance ids if they had never joined."""
    stopped_runs: tuple[str, ...]
    """Ids of the runs that were stopped first."""
    nodes: tuple[str, ...]
    """Names of all workers now."""
    usd_per_hour_before: float | None
    """Price of all instances, including the master; None if a price is unknown."""
    usd_per_hour: float | None

    def __str__(self) -> str:
        """Describe the change in one line."""
        if self.before == self.after and not self.added and not self.removed:
            return f"workers: {self.after}, as before"
        price = f", instances together {shown(self.usd_per_hour_before)} -> {shown(self.usd_per_hour)}"
        changes = [*(f"+{name}" for name in self.added), *(f"-{name}" for name in self.removed)]
        listed = f" ({', '.join(changes)})" if changes else ""  # another task may have changed the group meanwhile
        return f"workers: {self.before} -> {self.after}{listed}{price}"


def scale(task: GroupTask, wanted: int) -> ScaleResult:
    """Bring the group to `wanted` workers, after asking, and wait until the new ones are ready or the old ones gone.

    With `task.force`, workers of live runs may be terminated, after stopping the runs. Without it, raises
    BusyNodesError if such a worker would have to go. Raises LiveRunError if a run has started on one since the
    question, NotReadyError after a timeout, or DeepcdkError if the answer is no.
    """
    session, master = task.session, task.master
    names = {node.name for node in workers(session.nodes(master))}
    before = inventory.refresh(session.aws, session.stack)
    there = shrink.remaining(before)
    stopped: tuple[str, ...] = ()
    removed: tuple[shrink.Removal, ...] = ()
    if wanted < len(there):
        nodes, removed, stopped = _shrink(task, wanted)
    else:
        if before.desired_workers > wanted:
            with task.supervisor.hold(task.name, {}):
                found = inventory.refresh(session.aws, session.stack)
                if found.desired_workers > wanted >= len(shrink.remaining(found)):
                    # The group has not started all the nodes it should, so no running node is terminated.
                    worker_group.resize(session.aws, session.stack, wanted)
        nodes = ensure_nodes(task, wanted)
    now = inventory.refresh(session.aws, session.stack)
    return ScaleResult(
        before=len(there),
        after=len(shrink.remaining(now)),
        added=tuple(node.name for node in workers(nodes) if node.name not in names),
        removed=tuple(removal.name for removal in removed),
        stopped_runs=stopped,
        nodes=tuple(node.name for node in workers(nodes)),
        usd_per_hour_before=_cost(session, before),
        usd_per_hour=_cost(session, now),
    )


def _shrink(task: GroupTask, wanted: int) -> tuple[tuple[Node, ...], tuple[shrink.Removal, ...], tuple[str, ...]]:
    """Terminate workers until `wanted` are left, after asking, and wait until they are gone.

    Returns the remaining nodes, the removed workers, and the ids of the runs that were stopped first. Group and runs
    are read again after the answer. If other workers would have to go, such as nodes that another machine has started
    in the meantime, the question is asked again. While the workers are chosen and terminated, no other machine can
    change the size, and no run can start on them. Raises BusyNodesError, NotReadyError, LiveRunError if a run has
    started on them since the question, or DeepcdkError if the answer is no.
    """
    session, master, supervisor, report = task.session, task.master, task.supervisor, task.report

    def choose() -> tuple[Inventory, tuple[shrink.Removal, ...], Mapping[str, Mapping[str, str]]]:
        """Return the current inventory, the workers to remove, and who started the runs on them, by run id."""
        found = inventory.refresh(session.aws, session.stack)
        occupied = supervisor.occupancy()
        busy = occupied.hosts
        removals = shrink.choose(shrink.remaining(found), session.nodes(master), busy, wanted, force=task.force)
        names = {removal.name for removal in removals}
        hit = {run_id: occupied.starters.get(run_id, {}) for run_id, hosts in busy.items() if names & set(hosts)}
        return found, removals, hit

    found, removals, hit = choose()
    for line in starving_runs(supervisor.runs(), wanted):
        report(line)
    agreed: frozenset[str] = frozenset()
    while True:
        there = shrink.remaining(found)
        if agreed:
            report(f"the worker group has changed in the meantime: it has {len(there)} nodes")
        kind = there[0].type
        each = session.prices.per_hour([kind], wait_s=3.0)[kind]
        dated = as_of(session.prices.dated([kind]))
        less = f", {shown(None if each is None else each * len(removals))} less{dated}"
        stopping = f", stopping {describe_runs(list(hit))} first," if hit else ""
        listed = ", ".join(removal.name for removal in removals)
        confirm(
            f"shrink the worker group from {len(there)} to {wanted} nodes{stopping} by terminating {listed}{less}."
            + describe_others(hit, hit),
            yes=task.yes,
        )
        agreed = frozenset(removal.instance_id for removal in removals)
        with contextlib.ExitStack() as held:
            with supervisor.hold(task.name, {}):
                found, removals, hit_now = choose()  # a run may have started while the question was open
                if more := [run_id for run_id in hit_now if run_id not in hit]:
                    raise LiveRunError(more[0])
                hit = hit_now
                if not {removal.instance_id for removal in removals} <= agreed:
                    continue
                if not removals:
                    size = len(shrink.remaining(found))
                    report(
                        f"the worker group has already shrunk to {size} nodes in the meantime; no node was terminated"
                    )
                    return session.nodes(master), (), ()
                for run_id in hit:
                    task.stop_run(run_id)
                held.enter_context(supervisor.hold(task.name, {each.name: each.instance_id for each in removals}))
                report(f"terminating {', '.join(removal.name for removal in removals)}")
                shrink.terminate(session.aws, session.stack, found, removals)
            with interruptible("\nthe nodes terminate anyway; `fab status` shows the remaining nodes", report):
                left = shrink.wait_gone(session.aws, master, session.stack, removals, report=report)
        return left, removals, tuple(hit)


def starving_runs(runs: Sequence[Mapping[str, Any]], workers_left: int) -> list[str]:
    """Return a warning for each queued run that needs more nodes than `workers_left`. `runs` are the summaries of all
    runs.
    """
    waiting = [run for run in runs if run["state"] == QUEUED and len(run["hosts"]) > workers_left]
    return [
        f"warning: run {run['run_id']} is queued for {len(run['hosts'])} nodes, and fails if they are missing at its "
        f"turn; to remove it from the queue: `fab stop --run {run['run_id']}`"
        for run in waiting
    ]


def _cost(session: Session, found: Inventory) -> float | None:
    kinds = [i.type for i in found.instances if i.role != WORKER or i in shrink.remaining(found)]
    return total_per_hour(kinds, session.prices.per_hour(kinds, wait_s=1.0))
