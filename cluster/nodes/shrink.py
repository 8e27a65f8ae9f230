"""Choose workers to terminate, terminate them, and wait until they are gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from agent.spec.nodes import Node
from cluster.aws import inventory
from cluster.aws.errors import aws_errors
from cluster.aws.inventory import Instance, Inventory
from cluster.aws.stack import Stack
from cluster.errors import DeepcdkError, NotReadyError
from cluster.nodes.worker_group import POLL_S, read_nodes, resize
from cluster.polling import poll
from cluster.terminal.status_line import doing

if TYPE_CHECKING:
    from cluster.aws.client import Aws
    from cluster.ssh.master import Master

GONE_TIMEOUT_S: Final = 300.0
"""An instance terminates within two minutes. It leaves the nodes file a minute after its last heartbeat."""
_ENDING: Final = ("shutting-down", "terminated", "stopping", "stopped")


class BusyNodesError(DeepcdkError):
    """Report that the group cannot shrink that far without taking nodes of live runs."""

    def __init__(self, wanted: int, busy: Mapping[str, Sequence[str]], lowest: int) -> None:
        """`busy` maps each run's id to the names of its nodes. `lowest` is the smallest size that takes no node of a
        run.
        """
        self.wanted, self.busy, self.lowest = wanted, dict(busy), lowest
        runs = ", and from ".join(f"run {run}, which is live on {', '.join(names)}" for run, names in busy.items())
        super().__init__(
            f"shrinking to {wanted} workers would take nodes from {runs}",
            remedy=f"give --nodes {lowest}, wait until the run ends, or give --force, which stops the run with a "
            "checkpoint",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Removal:
    """One worker to terminate."""

    instance_id: str
    name: str
    """Name within the cluster; the instance id if it has not joined."""


def remaining(found: Inventory) -> tuple[Instance, ...]:
    """Return the workers that stay: without those that are stopped, terminated or about to be, or leave their group."""
    return tuple(
        i for i in found.workers if i.state not in _ENDING and not i.lifecycle.startswith(("Terminat", "Detach"))
    )


def choose(
    instances: Sequence[Instance], nodes: Sequence[Node], busy: Mapping[str, Sequence[str]], wanted: int, *, force: bool
) -> tuple[Removal, ...]:
    """Choose the workers to terminate so that `wanted` are left. Workers of live runs are chosen last.

    Otherwise, workers that never joined come first, then the highest numbers. Return them in this order; () if
    `instances`, all remaining workers, are not more than `wanted`. `busy` maps each live run's id to the names of its
    nodes. Raises BusyNodesError if a worker of a live run would have to be chosen, unless `force` is set.
    """
    joined = {node.instance_id: node for node in nodes}
    taken = {name for names in busy.values() for name in names}

    def rank(instance: Instance) -> tuple[bool, bool, int]:
        node = joined.get(instance.id)
        index = node.worker_index if node else None
        return (node is not None and node.name in taken, node is not None, -(index or 0))

    count = max(0, len(instances) - wanted)
    chosen = sorted(instances, key=rank)[:count]
    removals = tuple(Removal(instance_id=i.id, name=joined[i.id].name if i.id in joined else i.id) for i in chosen)
    hit = [removal.name for removal in removals if removal.name in taken]
    if hit and not force:
        raise BusyNodesError(
            wanted, {run: names for run, names in busy.items() if set(names) & set(hit)}, wanted + len(hit)
        )
    return removals


def terminate(aws: Aws, stack: Stack, before: Inventory, removals: Sequence[Removal]) -> None:
    """Terminate these workers and reduce the group's size by each, so that the group does not replace them.

    Does not wait. Workers that are already terminating are skipped. `before` is the inventory from which the workers
    were chosen. If the group's size is the same as then, but more than its running workers, the size is first reduced
    to their number, so that the group does not start the others. The caller holds the size against other machines.
    Raises AwsError.
    """
    scaling = aws.client("autoscaling")
    now = inventory.refresh(aws, stack)
    there = {instance.id for instance in remaining(now)}
    if now.desired_workers == before.desired_workers > len(there):
        # the group must not start the instances that it has not started so far
        resize(aws, stack, len(there))
    for removal in removals:
        if removal.instance_id not in there:
            continue
        with aws_errors(f"terminating {removal.name} ({removal.instance_id})"):
            scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=removal.instance_id, ShouldDecrementDesiredCapacity=True
            )


@doing("waiting for the nodes to leave", plain=False)
def wait_gone(
    aws: Aws,
    master: Master,
    stack: Stack,
    removals: Sequence[Removal],
    *,
    report: Callable[[str], None],
    timeout_s: float = GONE_TIMEOUT_S,
) -> tuple[Node, ...]:
    """Wait until EC2 runs none of these instances and the master lists none of them. Return the nodes that the master
    lists.

    `report` is called on each change. Raises NotReadyError with the remaining ones after `timeout_s`.
    """
    names = {removal.instance_id: removal.name for removal in removals}
    reported = 0
    for _ in poll(timeout_s, every_s=POLL_S):
        nodes = read_nodes(master)
        listed = {node.instance_id for node in nodes} & names.keys()
        running = {i.id for i in remaining(inventory.refresh(aws, stack))} & names.keys()
        if not (left := listed | running):
            return nodes
        if len(left) != reported:
            reported = len(left)
            report(f"nodes still terminating: {reported}")
    raise NotReadyError(
        f"{', '.join(sorted(names[i] for i in left))} still exist after {timeout_s:.0f} s",
        {},
        remedy="the nodes terminate anyway; `fab status` shows the remaining nodes",
    )
