"""Replace one worker: end its instance, have its group start another one, and wait until that one has joined."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Final

from agent.spec.nodes import MASTER_NAME, WORKER_PREFIX, Node, workers
from cluster.aws import inventory as stock
from cluster.aws.client import aws_errors
from cluster.aws.inventory import Instance
from cluster.errors import DeepcdkError, LiveRunError, NotReadyError, UsageError
from cluster.nodes.scale import FORCED_GRACE_S
from cluster.nodes.shrink import GONE_TIMEOUT_S, staying
from cluster.nodes.worker_group import POLL_S, read_nodes
from cluster.runs.supervisor import Supervisor
from cluster.session import Session, confirm
from cluster.ssh.connection import Master
from cluster.terminal.status_line import doing, interruptible

_COMMON: Final = WORKER_PREFIX.removesuffix("worker")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replaced:
    """Say which worker went and which came."""

    node: str
    """Name of the one that went; its instance's id where it had never joined."""
    instance: str
    new_node: str
    """Often the same name: the one that comes takes the lowest free one."""
    new_instance: str
    seconds: float
    stopped_run: str
    """Id of the run that was stopped for it, "" without one."""

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"{self.node} ({self.instance}) is replaced by {self.new_node} ({self.new_instance}) "
            f"after {self.seconds:.0f} s"
        )


def find(text: str, nodes: Sequence[Node], instances: Sequence[Instance]) -> tuple[Instance, str]:
    """Return the worker meant by worker3, 3, its full name or an instance's id, with its name.

    A worker that has not joined has its instance's id for a name. Raises UsageError.
    """
    names = {node.instance_id: node.name for node in workers(nodes)}
    word = text.strip().removeprefix(_COMMON)
    wanted = f"{WORKER_PREFIX}{word}" if word.isdecimal() else f"{_COMMON}{word}"
    if wanted == MASTER_NAME:
        raise UsageError("--node", text, "is the master; end its instance in EC2, and its group starts another one")
    for instance in instances:
        if text.strip() == instance.id or names.get(instance.id) == wanted:
            return instance, names.get(instance.id, instance.id)
    named = sorted((i.id not in names, len(names.get(i.id, "")), names.get(i.id, i.id)) for i in instances)
    there = ", ".join(name.removeprefix(_COMMON) for *_, name in named) or "none, for there is no worker"
    raise UsageError("--node", text, f"must be one of {there}")


def replace(
    session: Session,
    master: Master,
    supervisor: Supervisor,
    node: str,
    *,
    yes: bool,
    force: bool,
    tell: Callable[[str], None],
) -> Replaced:
    """Replace a worker, after asking; one of a live run only when forced, after the run was stopped.

    Raises UsageError, LiveRunError, NotReadyError, or DeepcdkError where the answer is no.
    """
    before = staying(session.inventory)
    instance, name = find(node, session.nodes(master), before)
    if (busy := _run_on(supervisor, name)) and not force:
        raise DeepcdkError(
            f"run {busy} is live on {name}",
            remedy=f"wait for its end, or give --force: it is then stopped first, with a checkpoint, and "
            f"`fab resume --run {busy}` goes on with it",
        )
    victim = f" after stopping run {busy}" if busy else ""
    confirm(
        f"replace {name} ({instance.id}, {instance.type}){victim}: what is on its own disks is lost, and its group "
        "starts another one at the same price.",
        yes=yes,
    )
    if now := _run_on(supervisor, name):  # One may have begun while the question stood.
        if now != busy:
            raise LiveRunError(now)
        tell(f"stopping run {now}, with {FORCED_GRACE_S:g} s for its checkpoint")
        supervisor.stop(now, FORCED_GRACE_S)
    tell(f"ending {name} ({instance.id})")
    began = time.monotonic()
    with aws_errors(f"ending {name} ({instance.id})"):
        session.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
            InstanceId=instance.id, ShouldDecrementDesiredCapacity=False
        )
    timeout_s = session.config.ready_timeout_min * 60.0 + GONE_TIMEOUT_S
    with interruptible("\nits group replaces it all the same; `fab status` shows the new one", tell):
        new = wait_joined(session, master, instance.id, {i.id for i in before}, timeout_s=timeout_s, tell=tell)
    return Replaced(
        node=name,
        instance=instance.id,
        new_node=new.name,
        new_instance=new.instance_id,
        seconds=round(time.monotonic() - began, 1),
        stopped_run=now,
    )


def _run_on(supervisor: Supervisor, name: str) -> str:
    """Return the id of the live run that has this node, "" without one."""
    live = supervisor.live()
    return live if live and name in supervisor.status(live)["hosts"] else ""


@doing("waiting for the new node", plain=False)
def wait_joined(
    session: Session,
    master: Master,
    gone: str,
    before: set[str],
    *,
    timeout_s: float,
    tell: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Node:
    """Wait until the instance `gone` is listed no more and one that was not among `before` has joined; return it.

    Raises NotReadyError that says what is missing.
    """
    deadline = time.monotonic() + timeout_s
    said = ""
    while True:
        nodes = read_nodes(master)
        came = [node for node in workers(nodes) if node.instance_id not in before]
        listed = any(node.instance_id == gone for node in nodes)
        if came and not listed:
            return came[-1]
        started = [i.id for i in staying(stock.refresh(session.aws, session.stack)) if i.id not in before]
        state = (
            f"waiting for {gone} to leave"
            if came
            else f"waiting for {', '.join(started)} to join"
            if started
            else "waiting for the group to start another one"
        )
        if state != said:
            said = state
            tell(state)
        if time.monotonic() >= deadline:
            consoles = {id: "\n".join(stock.console(session.aws, id).splitlines()[-8:]) for id in started[:2]}
            raise NotReadyError(
                f"after {timeout_s:.0f} s still {state}", consoles, remedy="`fab status` shows what EC2 makes of it"
            )
        sleep(POLL_S)
