"""The worker group: its maximum and size, the nodes that have joined, and waiting for the missing ones."""

from __future__ import annotations

import collections
import contextlib
import datetime
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent.spec.nodes import NODES_PATH, Node, parse_nodes, workers
from cluster.aws.errors import aws_errors
from cluster.aws.instance_console import last_console_lines
from cluster.aws.inventory import AZ_REBALANCE, Inventory, refresh
from cluster.aws.launch_failures import LaunchFailures, last_activity, remedy
from cluster.aws.stack import Stack
from cluster.errors import AwsError, DeepcdkError, NotReadyError
from cluster.nodes.logins import Logins
from cluster.polling import poll
from cluster.terminal.status_line import doing, warn

if TYPE_CHECKING:
    from cluster.aws.client import Aws
    from cluster.ssh.master import Master

POLL_S: Final = 1.0
SHRUNK_POLLS: Final = 3
"""The group counts as shrunk after this many consecutive answers, because the first ones may be older
than its growth.
"""
_ALARM: Final = re.compile(r"\bmonitor alarm (\S+) in state ALARM\b")
"""EC2 Auto Scaling's wording for the cause of an action by a policy."""
_LATE_S: Final = 60.0
"""Seconds after the group's last activity within which a run may notice it."""


class OverMaximumError(DeepcdkError, ValueError):
    """Report more workers than the deployed cluster allows."""

    def __init__(self, wanted: int, maximum: int, configured: int | None = None) -> None:
        """Build the error with the `wanted` workers and the deployed `maximum`. `configured` is max_workers in
        cdk.json, None if unknown.
        """
        self.wanted, self.maximum, self.configured = wanted, maximum, configured
        here = "" if configured is None else f"; max_workers in cdk.json is {configured}"
        enough = configured is not None and configured >= wanted
        deploy = (
            "deploy cdk.json with `fab up`" if enough else f"set max_workers to {wanted} in cdk.json and run `fab up`"
        )
        super().__init__(
            f"{wanted} workers are wanted, but the deployed cluster allows at most {maximum}{here}",
            remedy=f"give {maximum} or fewer, or {deploy}",
        )


class ShrunkGroupError(DeepcdkError):
    """Report that somebody else reduced the size of the worker group while this task waited for nodes."""

    def __init__(self, group: str, size: int, wanted: int) -> None:
        self.size, self.wanted = size, wanted
        super().__init__(
            f"{group} was set to {size} nodes in the meantime, by `fab scale` on another machine or a limit of the "
            f"cluster, but this task waits for {wanted}",
            remedy="repeat the command when the other change has ended; `fab status` shows the group",
        )


def check_maximum(wanted: int, deployed: Inventory, configured: int) -> None:
    """Raise OverMaximumError if the deployed cluster does not allow this many workers.

    `configured` is max_workers in the local cdk.json, which may differ from the deployed value.
    """
    if wanted > deployed.max_workers:
        raise OverMaximumError(wanted, deployed.max_workers, configured)


def resize(aws: Aws, stack: Stack, nodes: int) -> None:
    """Set the desired size of the group, without waiting. At a lower size, EC2 chooses the instances to terminate.

    EC2 Auto Scaling has no compare-and-set. Callers must therefore hold the size on the master (`Supervisor.hold`) and
    read it just before, after every question. Raises AwsError, or OverMaximumError above the group's maximum.
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
            with contextlib.suppress(AwsError):  # it must not hide why the size was rejected
                if nodes > (maximum := refresh(aws, stack).max_workers):
                    raise OverMaximumError(nodes, maximum) from None
            raise


def keep_workers_of_all_zones(aws: Aws, found: Inventory, report: Callable[[str], None]) -> None:
    """Suspend zone rebalancing of a group, because it terminates live workers, even during a run.

    EC2 Auto Scaling rebalances after a zone had no capacity or an instance was replaced. It starts a worker in the zone
    with fewer workers and terminates one in another zone (EC2 Auto Scaling User Guide, "Availability Zone
    rebalancing"). New workers are still started in the zone with the fewest. No template property suspends a process,
    so this is done when workers are provided for a run or a size. It stays suspended. `report` gets a line about the
    change, or a warning if AWS rejects it. Does nothing if rebalancing is suspended already.
    """
    if not found.rebalances_zones:
        return
    group = found.stack.worker_group
    try:
        with aws_errors(f"suspending {AZ_REBALANCE} of {group}"):
            aws.client("autoscaling").suspend_processes(AutoScalingGroupName=group, ScalingProcesses=[AZ_REBALANCE])
    except AwsError as error:
        report(
            f"warning: EC2 Auto Scaling may terminate workers of a run to balance the zones of {group}, because "
            f"{AZ_REBALANCE} could not be suspended: {error.what}; do: {error.remedy}"
        )
    else:
        report(f"suspended {AZ_REBALANCE} of {group}, because balancing its zones would terminate workers of a run")


def read_nodes(master: Master, report: Callable[[str], None] = warn) -> tuple[Node, ...]:
    """Read the nodes that the master lists as live, including itself.

    Invalid entries are skipped, and `report` gets a sentence on each. Whether the nodes accept logins is not checked.
    Raises RemoteError if the master cannot read its list.
    """
    return parse_nodes(master.check(["cat", NODES_PATH], doing="reading the nodes file").text, report)


@doing("waiting for the nodes", plain=False)
def wait_ready(
    aws: Aws,
    master: Master,
    stack: Stack,
    wanted: int,
    *,
    logins: Logins,
    timeout_s: float,
    report: Callable[[str], None],
    least: int = 0,
) -> tuple[Node, ...]:
    """Wait until `wanted` workers or more accept the master's logins. Return all such workers and the master.

    `report` is called on each change. If `least` is not 0, that many workers are enough after `timeout_s`. If even
    these are missing by then, raises NotReadyError with the missing instances and the last lines of their consoles.
    Raises ShrunkGroupError if the group's size is now below `wanted`.
    """
    reported, failures, smaller = (-1, -1, ""), LaunchFailures(aws, stack.worker_group), 0
    for waited_s in poll(timeout_s, every_s=POLL_S):
        listed = read_nodes(master)
        nodes = logins.ready(master, listed)
        ready = len(workers(nodes))
        if ready >= wanted:
            if waited_s:
                report(f"nodes ready: {ready} of {wanted}")
            return nodes
        current = refresh(aws, stack)
        smaller = smaller + 1 if current.desired_workers < wanted else 0
        if smaller >= SHRUNK_POLLS:
            raise ShrunkGroupError(stack.worker_group, current.desired_workers, wanted)
        started = len(current.workers)
        why = failures.explain(waited_s) if started < wanted else ""
        if logins.refused and len(workers(listed)) >= wanted:
            why = "; the master cannot log in yet"
        if (ready, started, why) != reported:
            reported = (ready, started, why)
            report(f"nodes ready: {ready} of {wanted} ({started} instances, {waited_s:.0f} s){why}")
    if 0 < least <= ready:
        return nodes
    refused = {node.instance_id: logins.refused[node.name] for node in listed if node.name in logins.refused}
    raise _not_ready(aws, current, nodes, refused, wanted, timeout_s)


def describe_shortfall(policy: str, ready: int, wanted: int) -> str:
    """Return a sentence on a group with only `ready` of `wanted` workers, which its capacity_policy `policy` allows."""
    return (
        f"{ready} of {wanted} workers have started, which is enough by capacity_policy {policy}; the group keeps "
        f"trying to start the others. To stop that: `fab scale --nodes {ready}`"
    )


def _not_ready(
    aws: Aws, current: Inventory, nodes: Sequence[Node], refused: Mapping[str, str], wanted: int, timeout_s: float
) -> NotReadyError:
    """Build the error for workers that are missing after `timeout_s`, with the end of each console and the group's last
    activity.

    `nodes` are ready. `refused` has the reasons for failed logins, by instance id.
    """
    ready, joined = len(workers(nodes)), {node.instance_id for node in nodes}
    absent = [i for i in current.workers if i.id not in joined]
    consoles = {
        f"{i.id} ({i.state}, {i.private_ip or 'no address'})": (
            f"the master cannot log in: {refused[i.id]}\n" if i.id in refused else ""
        )
        + last_console_lines(aws, i.id)
        for i in absent[:4]
    }
    group, first = current.stack.worker_group, ""
    if len(current.workers) < wanted:
        last, shown = None, "(no scaling activity yet)"
        try:
            last = last_activity(aws, group)
        except AwsError as error:
            shown = f"(its activities cannot be read: {error.what})"
        if last:
            message = last.get("StatusMessage") or last.get("Description", "")
            shown, first = f"{last['StatusCode']}: {message}", remedy(message) if last["StatusCode"] == "Failed" else ""
        consoles[f"{group} has started {len(current.workers)} of {wanted}"] = shown
    missing = f"missing: {', '.join(i.id for i in absent)}" if absent else "the others have not started"
    wait = "wait until `fab status` shows them"
    remedies = [
        first or (f"wait, or replace the instance: `fab replace {absent[0].id}`" if absent else wait),
        *([f"or train on the workers that are ready, with --nodes {ready}"] if ready else []),
    ]
    return NotReadyError(
        f"{ready} of {wanted} nodes are ready after {timeout_s:.0f} s; {missing}",
        consoles,
        remedy="; ".join(remedies),
    )


def describe_alarms(aws: Aws, stack: Stack, run: Mapping[str, Any]) -> list[str]:
    """Return a line for each alarm that terminated workers during a run; [] if there is none or AWS does not answer.

    `run` is the run's state as JSON values. The run lasts from its field `started` to its field `updated`. Terminations
    up to a minute later count too.
    """
    began, ended = float(run["started"]), float(run["updated"])
    try:
        with aws_errors(f"reading the activities of {stack.worker_group}"):
            pages = aws.client("autoscaling").get_paginator("describe_scaling_activities")
            every = (
                each
                for page in pages.paginate(AutoScalingGroupName=stack.worker_group)  # the newest first, 100 in a page
                for each in page["Activities"]
            )
            found = list(itertools.takewhile(lambda each: each["StartTime"].timestamp() >= began, every))
    except AwsError:
        return []
    times: dict[str, datetime.datetime] = {}
    counts: collections.Counter[str] = collections.Counter()
    for activity in found:
        alarm = _ALARM.search(activity.get("Cause", ""))
        is_end = activity.get("Description", "").startswith("Terminating")
        if alarm and is_end and activity["StartTime"].timestamp() <= ended + _LATE_S:
            counts[alarm[1]] += 1
            times[alarm[1]] = activity["StartTime"]
    return [
        f"alarm {name} terminated {count} worker{'s' * (count != 1)} at {times[name]:%H:%M:%S} UTC, during the run"
        for name, count in counts.items()
    ]
