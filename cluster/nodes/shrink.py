"""Take chosen workers out of their group, and wait until they are gone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from agent.spec.nodes import Node
from cluster.aws import inventory
from cluster.aws.client import aws_errors
from cluster.aws.inventory import Instance, Inventory, Stack
from cluster.errors import DeepcdkError, NotReadyError
from cluster.nodes.worker_group import POLL_S, read_nodes, resize
from cluster.terminal.status_line import doing

if TYPE_CHECKING:
    from cluster.aws.client import Aws
    from cluster.ssh.connection import Master

GONE_TIMEOUT_S: Final = 300.0
"""An instance ends within two minutes, and its name leaves the registry a minute after its last heartbeat."""
_LEAVING: Final = ("shutting-down", "terminated", "stopping", "stopped")


class BusyNodesError(DeepcdkError):
    """Report that a cluster cannot shrink so far without nodes of a live run."""

    def __init__(self, wanted: int, run_id: str, busy: Collection[str], lowest: int) -> None:
        self.wanted, self.run_id, self.busy, self.lowest = wanted, run_id, tuple(busy), lowest
        super().__init__(
            f"a group of {wanted} would take nodes from run {run_id}, which is live on {', '.join(self.busy)}",
            remedy=f"give --nodes {lowest}, wait for the run's end, or give --force: "
            "the run is then stopped first, with a checkpoint",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaver:
    """Name one worker that is to go."""

    instance_id: str
    name: str
    """Within the cluster; the instance's id where it has not joined."""


def staying(found: Inventory) -> tuple[Instance, ...]:
    """Return the workers that are there to stay: neither EC2 nor their group is ending them."""
    return tuple(
        i for i in found.workers if i.state not in _LEAVING and not i.lifecycle.startswith(("Terminat", "Detach"))
    )


def choose(
    instances: Sequence[Instance], nodes: Sequence[Node], busy: Mapping[str, Sequence[str]], wanted: int, *, force: bool
) -> tuple[Leaver, ...]:
    """Choose which workers go so that `wanted` stay: those that never joined first, then the highest-numbered ones.

    `busy` maps the id of the live run to its nodes' names. Raises BusyNodesError when only those are left to go, unless
    forced.
    """
    joined = {node.instance_id: node for node in nodes}
    taken = {name for names in busy.values() for name in names}

    def rank(instance: Instance) -> tuple[bool, bool, int]:
        node = joined.get(instance.id)
        index = node.worker_index if node else None
        return (node is not None and node.name in taken, node is not None, -(index or 0))

    count = max(0, len(instances) - wanted)
    chosen = sorted(instances, key=rank)[:count]
    leavers = tuple(Leaver(instance_id=i.id, name=joined[i.id].name if i.id in joined else i.id) for i in chosen)
    hit = [leaver.name for leaver in leavers if leaver.name in taken]
    if hit and not force:
        (run_id,) = busy
        raise BusyNodesError(wanted, run_id, sorted(taken), wanted + len(hit))
    return leavers


def take_out(aws: Aws, stack: Stack, found: Inventory, leavers: Sequence[Leaver]) -> None:
    """End these workers, each with one less for the group to have, so that it starts no others in their place.

    `found` is what the leavers were chosen from. The group is read again: a size that another machine has set since
    holds, and who has left since is not ended twice. Only what is set in the tenths of a second after that is lost.
    """
    scaling = aws.client("autoscaling")
    now = inventory.refresh(aws, stack)
    there = {instance.id for instance in staying(now)}
    if now.desired_workers == found.desired_workers > len(there):
        # What the group has not started yet it must not start now.
        resize(aws, stack, len(there))
    for leaver in leavers:
        if leaver.instance_id not in there:
            continue
        with aws_errors(f"ending {leaver.name} ({leaver.instance_id})"):
            scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=leaver.instance_id, ShouldDecrementDesiredCapacity=True
            )


@doing("waiting for the nodes to leave", plain=False)
def wait_gone(
    aws: Aws,
    master: Master,
    stack: Stack,
    leavers: Sequence[Leaver],
    *,
    tell: Callable[[int], None],
    timeout_s: float = GONE_TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Node, ...]:
    """Wait until EC2 runs none of these and the master lists none; return the nodes that it lists.

    `tell` gets how many are still there. Raises NotReadyError that names them.
    """
    ids = {leaver.instance_id: leaver.name for leaver in leavers}
    deadline = time.monotonic() + timeout_s
    while True:
        nodes = read_nodes(master)
        listed = {node.instance_id for node in nodes} & ids.keys()
        running = {i.id for i in staying(inventory.refresh(aws, stack))} & ids.keys()
        if not (left := listed | running):
            return nodes
        tell(len(left))
        if time.monotonic() >= deadline:
            names = ", ".join(sorted(ids[i] for i in left))
            raise NotReadyError(
                f"{names} still there after {timeout_s:.0f} s", {}, remedy="`fab status` shows what EC2 makes of them"
            )
        sleep(POLL_S)
