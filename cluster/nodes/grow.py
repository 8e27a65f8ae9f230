"""Grow the worker group to a size, after asking, and wait until the master can log in to its nodes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

from agent.spec.nodes import Node, workers
from agent.spec.run_states import STOP_GRACE_S
from cluster.aws import inventory, worker_limits
from cluster.aws.inventory import Inventory
from cluster.aws.prices import as_of, shown
from cluster.errors import DeepcdkError, NotReadyError
from cluster.nodes import worker_group
from cluster.nodes.logins import Logins
from cluster.nodes.shrink import remaining
from cluster.runs.supervisor_client import Supervisor
from cluster.session import Session
from cluster.ssh.master import Master
from cluster.terminal.confirmation import confirm
from cluster.terminal.output import print_note


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupTask:
    """A task that changes the worker group, with its connection to the master and its options."""

    session: Session
    master: Master
    name: str
    """Name shown on other machines while this task changes the size."""
    yes: bool
    """Whether questions are answered with yes, without asking."""
    report: Callable[[str], None]
    """Called with each line about progress."""
    force: bool = False
    """Whether to take nodes of live runs, after stopping the runs."""

    @property
    def supervisor(self) -> Supervisor:
        """Return a client for the supervisor on the master. Uploads the agent if needed."""
        return self.session.supervisor(self.master)

    @property
    def logins(self) -> Logins:
        """Return a new `Logins`, which checks which nodes the agent on the master can log in to. Uploads the agent if
        needed.
        """
        return Logins(self.session.push_agent(self.master))

    def stop_run(self, run_id: str) -> None:
        """Report that a run is stopped, stop it, and wait until it has ended.

        Its ranks get SIGTERM and STOP_GRACE_S seconds for a checkpoint, then SIGKILL.
        """
        self.report(f"stopping run {run_id}, with {STOP_GRACE_S:g} s for its checkpoint")
        self.supervisor.stop(run_id, STOP_GRACE_S)


def ensure_nodes(task: GroupTask, wanted: int, *, least: int = 0) -> tuple[Node, ...]:
    """Return the master and at least `wanted` live workers. If fewer have joined, grow the group first, after asking.

    It then waits up to `ready_min` of cdk.json until the master can log in to `wanted` workers, and returns only nodes
    that accept its logins. If `least` is not 0, that many workers are enough after this time. Also suspends zone
    rebalancing (`keep_workers_of_all_zones`). Raises NotReadyError after the timeout (the group keeps its new size),
    ShrunkGroupError or OverMaximumError for the group's size, or DeepcdkError if the answer is no.
    """
    session, master, report = task.session, task.master, task.report
    worker_group.keep_workers_of_all_zones(session.aws, session.load_inventory(), report)
    nodes = worker_group.read_nodes(master)
    if len(workers(nodes)) >= wanted:
        return nodes
    before = _grow(task, wanted)
    timeout_s = session.config.ready_min * 60.0
    try:
        found = worker_group.wait_ready(
            session.aws,
            master,
            session.stack,
            wanted,
            logins=task.logins,
            timeout_s=timeout_s,
            report=report,
            least=min(least, wanted),
        )
    except (KeyboardInterrupt, NotReadyError):
        if before < wanted:
            report(f"\nthe worker group stays at {wanted} nodes; to shrink it again: `fab scale --nodes {before}`")
        raise
    if (ready := len(workers(found))) < wanted:
        report(worker_group.describe_shortfall(session.config.capacity_policy, ready, wanted))
    return found


def _grow(task: GroupTask, wanted: int) -> int:
    """Grow the worker group to `wanted` after asking; never shrink it. Return its size before. Does not wait for nodes.

    After the answer, it waits until no alarm would terminate new workers. Then it reads the size again, while no other
    machine can change it. If another machine has grown the group in the meantime, its size stays. If the group is
    smaller, so that more nodes would start than agreed, the question is asked again. Raises DeepcdkError if the answer
    is no.
    """
    session, report, agreed = task.session, task.report, 0
    while True:
        with task.supervisor.hold(task.name, {}) if agreed else contextlib.nullcontext():
            found = inventory.refresh(session.aws, session.stack)
            size, more = found.desired_workers, wanted - found.desired_workers
            if more <= 0:
                if agreed:
                    report(f"another machine has grown the worker group to {size} nodes; no more nodes are needed")
                return size
            kind = found.workers[0].type if found.workers else session.config.worker_instance_type
            each = session.prices.per_hour([kind], wait_s=3.0)[kind]
            price = None if each is None else each * more
            added = f"{more} more {kind}, price {shown(price)}" + (" more" if price is not None else "")
            added += as_of(session.prices.dated([kind]))
            if more <= agreed:
                report(f"growing the worker group from {size} to {wanted} nodes: {added}")
                worker_group.resize(session.aws, session.stack, wanted)
                return size
        if agreed:
            report(
                f"another machine has changed the size of the worker group to {size}, so {more} nodes would start "
                f"instead of {agreed}"
            )
        confirm(f"grow the worker group from {size} to {wanted} nodes: {added}.", yes=task.yes)
        agreed = more
        worker_limits.wait_until_allowed(session.aws, session.stack.name, report)


def await_logins(session: Session, deployed: Inventory, report: Callable[[str], None]) -> Inventory:
    """Wait until the workers of a new or changed deployment accept the master's logins. Return its current inventory.

    `deployed` becomes the session's inventory. Prints a warning if the logins cannot be checked, because a deployment
    does not require a login on the master. Raises NotReadyError if they do not succeed within `ready_min` of cdk.json.
    """
    session.loaded_inventory, wanted = deployed, min(len(remaining(deployed)), deployed.desired_workers)
    timeout_s = session.config.ready_min * 60.0
    try:
        with session.connect() as master:
            logins = Logins(session.push_agent(master))
            worker_group.wait_ready(
                session.aws, master, deployed.stack, wanted, logins=logins, timeout_s=timeout_s, report=report
            )
    except NotReadyError:
        raise
    except DeepcdkError as error:
        print_note(f"warning: the workers have booted, but whether the master can log in to them is unknown: {error}")
    return inventory.refresh(session.aws, deployed.stack)
