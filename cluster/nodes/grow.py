"""Grow the worker group to a size, after asking, and wait until its nodes have joined the cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from agent.spec.nodes import Node, workers
from cluster.aws import inventory, limits
from cluster.aws.prices import as_of, shown
from cluster.errors import NotReadyError
from cluster.nodes import worker_group
from cluster.session import Session, confirm
from cluster.ssh.master import Master


def ensure_nodes(
    session: Session,
    master: Master,
    wanted: int,
    *,
    task: str,
    yes: bool,
    report: Callable[[str], None],
    least: int = 0,
) -> tuple[Node, ...]:
    """Return the live nodes once `wanted` workers are among them; grow the group for that, after asking.

    `task` is what other machines are told of while the size is set. After the time-out `least` workers are enough,
    unless that is 0. From then on EC2 Auto Scaling ends no worker to balance zones.
    """
    worker_group.keep_workers_of_all_zones(session.aws, session.load_inventory(), report)
    nodes = worker_group.read_nodes(master)
    if len(workers(nodes)) >= wanted:
        return nodes
    before = _grow(session, master, wanted, task=task, yes=yes, report=report)
    timeout_s = session.config.ready_timeout_min * 60.0
    try:
        found = worker_group.wait_ready(
            session.aws, master, session.stack, wanted, timeout_s=timeout_s, report=report, least=min(least, wanted)
        )
    except (KeyboardInterrupt, NotReadyError):
        if before < wanted:
            report(f"\nthe worker group stays at {wanted} nodes; `fab scale --nodes {before}` shrinks it again")
        raise
    if (ready := len(workers(found))) < wanted:
        report(worker_group.describe_shortfall(session.config.capacity_policy, ready, wanted))
    return found


def _grow(session: Session, master: Master, wanted: int, *, task: str, yes: bool, report: Callable[[str], None]) -> int:
    """Grow the worker group to `wanted` after asking, and never shrink it; return its size before.

    The size is read again after the answer and after waiting for an alarm, while no other machine can change it. If one
    has grown the group meanwhile, it stays; if it is smaller, so that more nodes would start than agreed to, the
    question is asked again.
    """
    agreed = 0
    while True:
        with session.supervisor(master).hold(task, {}) if agreed else contextlib.nullcontext():
            found = inventory.refresh(session.aws, session.stack)
            size, more = found.desired_workers, wanted - found.desired_workers
            if more <= 0:
                if agreed:
                    report(f"another machine has grown the worker group to {size} nodes; nothing is left to start")
                return size
            kind = found.workers[0].type if found.workers else session.config.worker_instance_type
            each = session.prices.per_hour([kind], wait_s=3.0)[kind]
            price = None if each is None else each * more
            dated = as_of(session.prices.dated([kind]))
            if more <= agreed:
                report(f"growing the worker group from {size} to {wanted} nodes ({kind}, price {shown(price)}{dated})")
                worker_group.resize(session.aws, session.stack, wanted)
                return size
        if agreed:
            report(f"another machine has set the worker group to {size} nodes: {more} would start, not {agreed}")
        confirm(
            f"grow the worker group from {size} to {wanted} nodes: {more} more {kind}, price {shown(price)}"
            + (" more" if price is not None else "")
            + f"{dated}.",
            yes=yes,
        )
        agreed = more
        limits.wait_until_allowed(session.aws, session.stack.name, report)
