"""Bring the worker group to a size: ask, grow or shrink, and wait until that is so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.spec.nodes import workers
from agent.spec.states import QUEUED
from cluster.aws import inventory as stock
from cluster.aws.pricing import shown, total_per_hour
from cluster.cli.numbers import parse_whole
from cluster.errors import LiveRunError
from cluster.nodes import shrink, worker_group
from cluster.nodes.grow import ensure_nodes
from cluster.runs.supervisor import Supervisor
from cluster.session import Session, confirm
from cluster.ssh.connection import Master
from cluster.terminal.status_line import interruptible
from stacks.config import WORKER

FORCED_GRACE_S = 30.0
"""What a run gets for its last checkpoint before its nodes are taken by --force."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaled:
    """Say what became of the worker group."""

    before: int
    after: int
    added: tuple[str, ...]
    """Names of the nodes that joined."""
    removed: tuple[str, ...]
    """Names of the nodes that went; an instance's id where it had never joined."""
    stopped_run: str
    """Id of the run that was stopped for it, "" without one."""
    nodes: tuple[str, ...]
    """Names of the workers now."""
    usd_per_hour_before: float | None
    """All instances together, the master included; None where a price is unknown."""
    usd_per_hour: float | None

    def __str__(self) -> str:
        """Say it in one line."""
        if self.before == self.after and not self.added and not self.removed:
            return f"workers: {self.after}, as before"
        price = f", instances together {shown(self.usd_per_hour_before)} -> {shown(self.usd_per_hour)}"
        changes = [*(f"+{name}" for name in self.added), *(f"-{name}" for name in self.removed)]
        return f"workers: {self.before} -> {self.after} ({', '.join(changes)}){price}"


def parse_size(text: str) -> int:
    """Parse the size that `fab scale` is given, before the cluster is known. Raises UsageError that names the rule."""
    return parse_whole("--nodes", text, lowest=0)


def scale(
    session: Session,
    master: Master,
    supervisor: Supervisor,
    wanted: int,
    *,
    yes: bool,
    force: bool,
    tell: Callable[[str], None],
) -> Scaled:
    """Bring the group to `wanted` workers, after asking; a live run keeps its nodes unless forced.

    Raises BusyNodesError, NotReadyError, or DeepcdkError where the answer is no.
    """
    names = {node.name for node in workers(session.nodes(master))}
    found = stock.refresh(session.aws, session.stack)
    there = shrink.staying(found)
    stopped = ""
    removed: tuple[shrink.Leaver, ...] = ()
    if wanted < len(there):
        removed, stopped = _shrink(session, master, supervisor, wanted, yes=yes, force=force, tell=tell)
        with interruptible("\nthe nodes end all the same; `fab status` shows what is left", tell):
            nodes = shrink.wait_gone(
                session.aws, master, session.stack, removed, tell=_once(tell, "nodes still leaving: {}")
            )
    else:
        if found.desired_workers > wanted:
            # It wants more than it has come to have, and more than it is to have: nothing runs that would end. It was
            # read just before: what another machine sets in the tenths of a second between is overwritten.
            worker_group.resize(session.aws, session.stack, wanted)
        nodes = ensure_nodes(session, master, wanted, yes=yes, tell=tell)
    now = stock.refresh(session.aws, session.stack)
    return Scaled(
        before=len(there),
        after=len(shrink.staying(now)),
        added=tuple(node.name for node in workers(nodes) if node.name not in names),
        removed=tuple(leaver.name for leaver in removed),
        stopped_run=stopped,
        nodes=tuple(node.name for node in workers(nodes)),
        usd_per_hour_before=_cost(session, found),
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
    tell: Callable[[str], None],
) -> tuple[tuple[shrink.Leaver, ...], str]:
    """Take workers out down to `wanted`; return them, and the id of the run that was stopped for it.

    Group and runs are read again after the answer. Only what was agreed to is ended: the question is asked again where
    others would have to go, such as nodes that another machine has started meanwhile.
    """

    def chosen() -> tuple[stock.Inventory, tuple[shrink.Leaver, ...], str]:
        found = stock.refresh(session.aws, session.stack)
        live = supervisor.live()
        busy = {live: tuple(map(str, supervisor.status(live)["hosts"]))} if live else {}
        leavers = shrink.choose(shrink.staying(found), session.nodes(master), busy, wanted, force=force)
        return found, leavers, live if {leaver.name for leaver in leavers} & set(busy.get(live, ())) else ""

    found, leavers, run_id = chosen()
    for line in starved(supervisor.runs(), wanted):
        tell(line)
    agreed: frozenset[str] = frozenset()
    while not {leaver.instance_id for leaver in leavers} <= agreed:
        there = shrink.staying(found)
        if agreed:
            tell(f"the worker group has changed meanwhile: it has {len(there)} nodes")
        kind = there[0].type
        each = session.prices.per_hour([kind], wait_s=3.0)[kind]
        less = f", {shown(None if each is None else each * len(leavers))} less"
        victim = f", stopping run {run_id} first," if run_id else ""
        listed = ", ".join(leaver.name for leaver in leavers)
        confirm(
            f"shrink the worker group from {len(there)} to {wanted} nodes{victim} by ending {listed}{less}.", yes=yes
        )
        agreed = frozenset(leaver.instance_id for leaver in leavers)
        found, leavers, run_now = chosen()  # A run may have begun while the question stood.
        if run_now not in ("", run_id):
            raise LiveRunError(run_now)
        run_id = run_now
    if not leavers:
        tell(f"the worker group has come down to {len(shrink.staying(found))} nodes meanwhile")
        return (), ""
    if run_id:
        tell(f"stopping run {run_id}, with {FORCED_GRACE_S:g} s for its checkpoint")
        supervisor.stop(run_id, FORCED_GRACE_S)
    tell(f"ending {', '.join(leaver.name for leaver in leavers)}")
    shrink.take_out(session.aws, session.stack, found, leavers)
    return leavers, run_id


def starved(runs: Sequence[Mapping[str, Any]], workers_left: int) -> list[str]:
    """Warn of each run that waits in the queue for more nodes than will be left, a line for each."""
    waiting = [run for run in runs if run["state"] == QUEUED and len(run["hosts"]) > workers_left]
    return [
        f"warning: run {run['run_id']} waits in the queue for {len(run['hosts'])} nodes, and fails when its turn comes "
        f"and they are not there; `fab stop --run {run['run_id']}` takes it out"
        for run in waiting
    ]


def _once(tell: Callable[[str], None], text: str) -> Callable[[int], None]:
    """Tell a number when it changes."""
    last: list[int] = []

    def told(number: int) -> None:
        if last[-1:] != [number]:
            last.append(number)
            tell(text.format(number))

    return told


def _cost(session: Session, found: stock.Inventory) -> float | None:
    kinds = [i.type for i in found.instances if i.role != WORKER or i in shrink.staying(found)]
    return total_per_hour(kinds, session.prices.per_hour(kinds, wait_s=1.0))
