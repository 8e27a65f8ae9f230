"""What a task orders of the cluster: a deployment, more nodes, a run."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Callable, Mapping, Sequence

from agent.spec.run import Node, RunSpec, SpecError, workers
from cluster.aws import guard, inventory
from cluster.aws.pricing import shown, total_per_hour
from cluster.errors import DeepcdkError, NotReadyError
from cluster.nodes import grow
from cluster.runs import launch
from cluster.runs.program import Program
from cluster.session import Session, confirm
from cluster.ssh.connection import Master
from stacks.config import ClusterConfig
from stacks.config_keys.network import ONE_NAT_GATEWAY


def describe_deployment(session: Session) -> str:
    """Say what a deployment starts and what it costs, as far as that is known."""
    config = session.config
    kinds = [config.master_instance_type, *[config.worker_instance_type] * config.workers]
    price = shown(total_per_hour(kinds, session.prices.per_hour(kinds, wait_s=3.0)))
    types = " or ".join(config.worker_types)
    nodes = f"a {config.master_instance_type} master and {config.workers} {types} workers"
    if config.spot:
        nodes += f", {max(0, config.workers - config.on_demand_workers)} of them on spot"
    return f"deploy stack {config.stack_name}: {nodes}, instances {price}{_ways_out(config)}."


def _ways_out(config: ClusterConfig) -> str:
    """Say what the deployment makes that lets the workers out, and costs by the hour too."""
    if config.vpc_id:
        return f", in the existing {config.vpc_id}"
    if config.nat_gateways == ONE_NAT_GATEWAY or config.availability_zones == 1:
        return ", and a NAT gateway"
    return f", and {config.availability_zones} NAT gateways"


def provide_nodes(
    session: Session, master: Master, wanted: int, *, yes: bool, tell: Callable[[str], None], least: int = 0
) -> tuple[Node, ...]:
    """Return the live nodes once at least `wanted` workers are among them, growing the group after asking.

    Where `least` is not 0, so many suffice when the time is over.
    """
    nodes = grow.read_nodes(master)
    if len(workers(nodes)) >= wanted:
        return nodes
    have = _grow(session, wanted, yes=yes, tell=tell)
    last: list[tuple[int, int]] = []

    def show(progress: grow.Progress) -> None:
        if last[-1:] != [(progress.ready, progress.instances)]:
            last.append((progress.ready, progress.instances))
            started = f"{progress.instances} instances, {progress.waited_s:.0f} s"
            tell(f"nodes ready: {progress.ready} of {progress.wanted} ({started})")

    timeout_s = session.config.ready_timeout_min * 60.0
    try:
        found = grow.wait_ready(
            session.aws, master, session.stack, wanted, timeout_s=timeout_s, tell=show, least=min(least, wanted)
        )
    except (KeyboardInterrupt, NotReadyError):
        if have < wanted:
            tell(f"\nthe worker group stays at {wanted} nodes; `fab scale --nodes {have}` shrinks it again")
        raise
    if last:
        tell(f"nodes ready: {len(workers(found))} of {wanted}")
    if (came := len(workers(found))) < wanted:
        tell(grow.shortfall(session.config.capacity_policy, came, wanted))
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
            grow.resize(session.aws, session.stack, wanted)
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


def specify(
    session: Session,
    work: launch.Training | Program,
    nodes: Sequence[Node],
    count: int,
    *,
    payload: str,
    program: str,
    terms: launch.Terms,
    cores: Mapping[str, int] | None = None,
) -> RunSpec:
    """Build the spec of a new run. Raises DeepcdkError for one that cannot be."""
    source = work.directory if isinstance(work, Program) else session.project
    try:
        return launch.build(
            session.stack,
            work,
            nodes,
            count,
            payload=payload,
            program=program,
            terms=terms,
            cores=cores,
            now=datetime.datetime.now(datetime.UTC),
            token=secrets.token_hex(2),
            git_commit=launch.git_commit(source),
        )
    except SpecError as error:
        raise DeepcdkError(str(error), remedy="`fab status` shows the nodes") from None
