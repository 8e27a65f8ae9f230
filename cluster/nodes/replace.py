"""Replace one worker: terminate its instance, and wait until its group's replacement has joined."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Final

from agent.spec.nodes import MASTER_NAME, WORKER_PREFIX, Node, workers
from cluster.aws import inventory
from cluster.aws.errors import aws_errors
from cluster.aws.instance_console import last_console_lines
from cluster.aws.inventory import Instance
from cluster.aws.launch_failures import LaunchFailures
from cluster.errors import DeepcdkError, LiveRunError, NotReadyError, UsageError
from cluster.nodes.grow import GroupTask
from cluster.nodes.shrink import GONE_TIMEOUT_S, remaining
from cluster.nodes.worker_group import POLL_S, read_nodes
from cluster.polling import poll
from cluster.runs.run_owner import describe_others
from cluster.runs.supervisor_client import Supervisor
from cluster.terminal.confirmation import confirm
from cluster.terminal.status_line import doing, interruptible

_COMMON: Final = WORKER_PREFIX.removesuffix("worker")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replacement:
    """The replaced worker and its replacement."""

    node: str
    """Name of the replaced worker, or its instance id if it had never joined."""
    instance: str
    new_node: str
    """Often the same name, because a new node takes the lowest free one."""
    new_instance: str
    seconds: float
    stopped_run: str
    """Id of the run that was stopped first; "" if there was none."""

    def __str__(self) -> str:
        """Describe the replacement in one line."""
        return (
            f"{self.node} ({self.instance}) was replaced by {self.new_node} ({self.new_instance}) after "
            f"{self.seconds:.0f} s"
        )


def find(text: str, nodes: Sequence[Node], instances: Sequence[Instance]) -> tuple[Instance, str]:
    """Find the worker `text`: worker3, 3, its full name or an instance id. Return its instance and its name.

    `nodes` are the nodes that have joined, and `instances` all workers. The name of a worker that has not joined is its
    instance id. Raises UsageError if there is no such worker.
    """
    names = {node.instance_id: node.name for node in workers(nodes)}
    word = text.strip().removeprefix(_COMMON)
    wanted = f"{WORKER_PREFIX}{word}" if word.isdecimal() else f"{_COMMON}{word}"
    if wanted == MASTER_NAME:
        raise UsageError(
            "--node",
            text,
            "is the master; to replace it, terminate its instance in EC2, and the Auto Scaling group "
            "starts a new master",
        )
    for instance in instances:
        if text.strip() == instance.id or names.get(instance.id) == wanted:
            return instance, names.get(instance.id, instance.id)
    named = sorted((i.id not in names, len(names.get(i.id, "")), names.get(i.id, i.id)) for i in instances)
    if not named:
        raise UsageError(
            "--node", text, "cannot be replaced, because the cluster has no worker; `fab scale` adds workers"
        )
    there = ", ".join(name.removeprefix(_COMMON) for *_, name in named)
    raise UsageError("--node", text, f"must be one of {there}")


def replace(task: GroupTask, node: str) -> Replacement:
    """Replace a worker, after asking, and wait until the new one has joined.

    `node` is the worker as for `find`. With `task.force`, a live run on it is stopped first; without it, DeepcdkError
    is raised. Raises UsageError for an unknown worker, NotReadyError if the new one does not join in time, LiveRunError
    if a run has started on the worker since the question, or DeepcdkError if the answer is no.
    """
    session, supervisor, report = task.session, task.supervisor, task.report
    before = remaining(session.load_inventory())
    instance, name = find(node, session.nodes(task.master), before)
    occupied = supervisor.occupancy()
    if (busy := occupied.run_on(name)) and not task.force:
        raise DeepcdkError(
            f"run {busy} is live on {name}",
            remedy="wait until the run ends, or give --force: it stops the run with a checkpoint, and "
            f"`fab resume --run {busy}` continues it",
        )
    stopping = f" after stopping run {busy}" if busy else ""
    confirm(
        f"replace {name} ({instance.id}, {instance.type}){stopping}: data on its own disks is lost, and the Auto "
        f"Scaling group starts a new instance at the same price.{describe_others(occupied.starters, [busy])}",
        yes=task.yes,
    )
    if now := _run_on(supervisor, name):  # a run may have started while the question was open
        if now != busy:
            raise LiveRunError(now)
        task.stop_run(now)
    timeout_s = session.config.ready_min * 60.0 + GONE_TIMEOUT_S
    with supervisor.hold(task.name, {name: instance.id}):  # no run may start on it now
        report(f"terminating {name} ({instance.id})")
        began = time.monotonic()
        with aws_errors(f"terminating {name} ({instance.id})"):
            session.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
                InstanceId=instance.id, ShouldDecrementDesiredCapacity=False
            )
        with interruptible(
            "\nthe Auto Scaling group replaces the worker anyway; `fab status` shows the new one", report
        ):
            new = wait_joined(task, instance.id, {i.id for i in before}, timeout_s=timeout_s)
    return Replacement(
        node=name,
        instance=instance.id,
        new_node=new.name,
        new_instance=new.instance_id,
        seconds=round(time.monotonic() - began, 1),
        stopped_run=now,
    )


def _run_on(supervisor: Supervisor, name: str) -> str:
    """Return the id of the live run on this node; "" if there is none."""
    return supervisor.occupancy().run_on(name)


@doing("waiting for the new node", plain=False)
def wait_joined(task: GroupTask, gone: str, before: set[str], *, timeout_s: float) -> Node:
    """Wait until the instance `gone` has left, and a new worker has joined and accepts the master's logins.

    Return the new worker's node. `before` contains the ids of the workers' instances before the replacement. Each
    change is reported. Raises NotReadyError with the missing step after `timeout_s`.
    """
    session, logins = task.session, task.logins
    state, failures = "", LaunchFailures(session.aws, session.stack.worker_group)
    for waited_s in poll(timeout_s, every_s=POLL_S):
        nodes = read_nodes(task.master)
        new = [node for node in workers(nodes) if node.instance_id not in before]
        ready = logins.ready(task.master, new)
        if ready and all(node.instance_id != gone for node in nodes):
            return ready[-1]
        started = [i.id for i in remaining(inventory.refresh(session.aws, session.stack)) if i.id not in before]
        was, state = (
            state,
            (
                f"waiting for {gone} to terminate"
                if ready
                else f"waiting until the master can log in to {new[-1].name}"
                if new
                else f"waiting for {', '.join(started)} to join"
                if started
                else f"waiting for the Auto Scaling group to start a new instance{failures.explain(waited_s)}"
            ),
        )
        if state != was:
            task.report(state)
    consoles = {id: last_console_lines(session.aws, id) for id in started[:2]}
    raise NotReadyError(
        f"the replacement was not complete after {timeout_s:.0f} s: still {state}",
        consoles,
        remedy="the Auto Scaling group continues; check the nodes with `fab status` before you repeat `fab replace`",
    )
