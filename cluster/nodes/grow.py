"""Grow the worker group to a size, after asking, and wait until its nodes have joined the cluster."""

from __future__ import annotations

from collections.abc import Callable

from agent.spec.nodes import Node, workers
from cluster.aws import guard, inventory
from cluster.aws.pricing import shown
from cluster.errors import NotReadyError
from cluster.nodes import worker_group
from cluster.session import Session, confirm
from cluster.ssh.connection import Master


def ensure_nodes(
    session: Session, master: Master, wanted: int, *, yes: bool, tell: Callable[[str], None], least: int = 0
) -> tuple[Node, ...]:
    """Return the live nodes once at least `wanted` workers are among them, growing the group after asking.

    Where `least` is not 0, so many suffice when the time is over.
    """
    nodes = worker_group.read_nodes(master)
    if len(workers(nodes)) >= wanted:
        return nodes
    have = _grow(session, wanted, yes=yes, tell=tell)
    last: list[tuple[int, int]] = []

    def show(progress: worker_group.Progress) -> None:
        if last[-1:] != [(progress.ready, progress.instances)]:
            last.append((progress.ready, progress.instances))
            started = f"{progress.instances} instances, {progress.waited_s:.0f} s"
            tell(f"nodes ready: {progress.ready} of {progress.wanted} ({started})")

    timeout_s = session.config.ready_timeout_min * 60.0
    try:
        found = worker_group.wait_ready(
            session.aws, master, session.stack, wanted, timeout_s=timeout_s, tell=show, least=min(least, wanted)
        )
    except (KeyboardInterrupt, NotReadyError):
        if have < wanted:
            tell(f"\nthe worker group stays at {wanted} nodes; `fab scale --nodes {have}` shrinks it again")
        raise
    if last:
        tell(f"nodes ready: {len(workers(found))} of {wanted}")
    if (came := len(workers(found))) < wanted:
        tell(worker_group.shortfall(session.config.capacity_policy, came, wanted))
    return found


def _grow(session: Session, wanted: int, *, yes: bool, tell: Callable[[str], None]) -> int:
    """Raise the worker group to `wanted` after asking, and never lower it; return the size that it had before.

    The size is read again after the answer, and once more after an alarm was waited for. Where others have raised it
    that far meanwhile, it stays; where it has become smaller, so that more nodes would start than were agreed to, the
    question is asked again. EC2 Auto Scaling has no compare-and-set: a size that another machine sets between the last
    reading and the setting here, which takes some tenths of a second, is still overwritten.
    """
    agreed = 0
    while True:
        found = inventory.refresh(session.aws, session.stack)
        have, more = found.desired_workers, wanted - found.desired_workers
        if more <= 0:
            if agreed:
                tell(f"the worker group was grown to {have} nodes meanwhile; nothing is left to start")
            return have
        kind = found.workers[0].type if found.workers else session.config.worker_instance_type
        each = session.prices.per_hour([kind], wait_s=3.0)[kind]
        price = None if each is None else each * more
        if more <= agreed:
            tell(f"growing the worker group from {have} to {wanted} nodes ({kind}, price {shown(price)})")
            worker_group.resize(session.aws, session.stack, wanted)
            return have
        if agreed:
            tell(f"the worker group was set to {have} nodes meanwhile: {more} more would start, and not {agreed}")
        confirm(
            f"grow the worker group from {have} to {wanted} nodes: {more} more {kind}, price {shown(price)}"
            + (" more." if price is not None else "."),
            yes=yes,
        )
        agreed = more
        guard.await_release(session.aws, session.stack.name, tell)
