"""The worker group: its maximum and its size, the nodes that have joined, and waiting for those that have not."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent.spec.nodes import NODES_PATH, Node, parse_nodes, workers
from cluster.aws import inventory
from cluster.aws.client import aws_errors
from cluster.aws.inventory import Inventory, Stack
from cluster.cli.numbers import parse_whole
from cluster.errors import DeepcdkError, NotReadyError
from cluster.terminal.status_line import doing, warn

if TYPE_CHECKING:
    from cluster.aws.client import Aws
    from cluster.ssh.connection import Master

POLL_S: Final = 1.0
CONSOLE_LINES: Final = 8


class OverMaximumError(DeepcdkError, ValueError):
    """Report more workers than the deployed cluster takes."""

    def __init__(self, wanted: int, maximum: int, configured: int | None = None) -> None:
        """Report it; `configured` is max_workers of cdk.json, None where it is not known."""
        self.wanted, self.maximum, self.configured = wanted, maximum, configured
        here = "" if configured is None else f"; cdk.json says max_workers = {configured}"
        enough = configured is not None and configured >= wanted
        deploy = "deploy that with `fab up`" if enough else f"set max_workers to {wanted} in cdk.json and run `fab up`"
        super().__init__(
            f"{wanted} workers are wanted, and the deployed cluster takes {maximum} at most{here}",
            remedy=f"give {maximum} or fewer, or {deploy}",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """Say how far the nodes are."""

    wanted: int
    ready: int
    """Workers that the master lists."""
    instances: int
    """Workers that EC2 has started."""
    waited_s: float


def parse_nodes_argument(text: str) -> int:
    """Parse --nodes, before the cluster is known. Raises UsageError that names the rule."""
    return parse_whole("--nodes", text, lowest=1)


def check_maximum(wanted: int, deployed: Inventory, configured: int) -> None:
    """Check that the deployed cluster takes so many workers. Raises OverMaximumError, which names both bounds.

    What is deployed decides; `configured`, which is max_workers of the local cdk.json, may be another one.
    """
    if wanted > deployed.max_workers:
        raise OverMaximumError(wanted, deployed.max_workers, configured)


def resize(aws: Aws, stack: Stack, nodes: int) -> None:
    """Set how many workers the group is to have. Raises OverMaximumError, or AwsError.

    EC2 Auto Scaling sets a size whatever the size is, and a lower one ends instances of its own choice. Callers read
    the size just before, after every question; what another machine sets between that reading and this is lost.
    """
    from botocore.exceptions import ClientError

    with aws_errors(f"setting {stack.worker_group} to {nodes}"):
        try:
            aws.client("autoscaling").set_desired_capacity(
                AutoScalingGroupName=stack.worker_group, DesiredCapacity=nodes, HonorCooldown=False
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationError":
                raise
            maximum = inventory.refresh(aws, stack).max_workers
            if nodes <= maximum:
                raise
            raise OverMaximumError(nodes, maximum) from None


def read_nodes(master: Master, tell: Callable[[str], None] = warn) -> tuple[Node, ...]:
    """Read the nodes that the master lists as live, itself included; `tell` gets a sentence for each one left out."""
    return parse_nodes(master.check(["cat", NODES_PATH], doing="reading the nodes file").text, tell)


@doing("waiting for the nodes", plain=False)
def wait_ready(
    aws: Aws,
    master: Master,
    stack: Stack,
    wanted: int,
    *,
    timeout_s: float,
    tell: Callable[[Progress], None],
    least: int = 0,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Node, ...]:
    """Wait until the master lists `wanted` workers; return all nodes that it lists.

    When the time is over, `least` workers suffice, unless that is 0. Raises NotReadyError that names the instances that
    did not join, with the last lines of their consoles.
    """
    began = time.monotonic()
    while True:
        nodes = read_nodes(master)
        ready = workers(nodes)
        if len(ready) >= wanted:
            return nodes
        current = inventory.refresh(aws, stack)
        waited_s = time.monotonic() - began
        tell(Progress(wanted=wanted, ready=len(ready), instances=len(current.workers), waited_s=waited_s))
        if waited_s >= timeout_s:
            if 0 < least <= len(ready):
                return nodes
            raise _not_ready(aws, current, {node.instance_id for node in nodes}, len(ready), wanted, timeout_s)
        sleep(POLL_S)


def shortfall(policy: str, came: int, wanted: int) -> str:
    """Say that fewer workers came than were wanted, and what becomes of the others."""
    return (
        f"{came} of {wanted} workers came, which suffices by capacity_policy {policy}; the group goes on trying to "
        f"start the others, and `fab scale --nodes {came}` ends that"
    )


def _not_ready(
    aws: Aws, current: Inventory, joined: set[str], ready: int, wanted: int, timeout_s: float
) -> NotReadyError:
    absent = [i for i in current.workers if i.id not in joined]
    consoles = {
        f"{i.id} ({i.state}, {i.private_ip or 'no address'})": "\n".join(
            inventory.console(aws, i.id).splitlines()[-CONSOLE_LINES:]
        )
        or "(its console is empty)"
        for i in absent[:4]
    }
    if len(current.workers) < wanted:
        consoles[f"{current.stack.worker_group} has started {len(current.workers)} of {wanted}"] = _last_activity(
            aws, current.stack
        )
    missing = ", ".join(i.id for i in absent) or "not started"
    return NotReadyError(
        f"{ready} of {wanted} nodes are ready after {timeout_s:.0f} s; missing: {missing}",
        consoles,
        remedy=f"repeat with --nodes {ready}, or end the missing instance so that its group replaces it"
        if ready
        else "look at the consoles above; `fab status` shows the nodes",
    )


def _last_activity(aws: Aws, stack: Stack) -> str:
    with aws_errors(f"reading the activities of {stack.worker_group}"):
        found = aws.client("autoscaling").describe_scaling_activities(
            AutoScalingGroupName=stack.worker_group, MaxRecords=1
        )
    activities = found.get("Activities", [])
    if not activities:
        return "(no scaling activity yet)"
    return (
        f"{activities[0]['StatusCode']}: {activities[0].get('StatusMessage') or activities[0].get('Description', '')}"
    )
