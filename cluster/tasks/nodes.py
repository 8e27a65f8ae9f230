"""The tasks for nodes: change their number, replace one, and allow them again after the budget."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from cluster.aws import worker_limits
from cluster.cli import PROJECT
from cluster.cli.flags import parse_whole
from cluster.cli.task import Json, Key, Set, Yes, task
from cluster.errors import DeepcdkError, UsageError
from cluster.nodes import replace as replacing
from cluster.nodes import scale as scaling
from cluster.nodes.grow import GroupTask
from cluster.nodes.release import count_messages, purge_messages, wait_until_released
from cluster.nodes.worker_group import check_maximum
from cluster.session import Session
from cluster.terminal.confirmation import confirm
from cluster.terminal.output import print_result, progress_printer
from cluster.terminal.status_line import doing


@task(word="--nodes")
def scale(
    set_: Set = (),
    nodes: Annotated[str, "number of worker nodes, from 0"] = "",
    force: Annotated[bool, "also remove nodes of a live run, after stopping it with a checkpoint"] = False,
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Set the number of workers, and wait until it is reached.

    A live run keeps its nodes. Idle workers with the highest numbers are removed first.

    Example: fab scale 4
    """
    session, progress = Session(PROJECT, set_, key=key), progress_printer(json=json)
    if not nodes:
        raise UsageError("--nodes", None, "must be the number of workers, such as `fab scale 4`")
    wanted = parse_whole("--nodes", nodes, lowest=0)
    check_maximum(wanted, session.load_inventory(), session.config.max_workers)
    session.prices.begin(session.instance_types)
    with session.connect() as master:
        task = GroupTask(session=session, master=master, name="fab scale", yes=yes, force=force, report=progress)
        scaled = scaling.scale(task, wanted)
    print_result(dataclasses.asdict(scaled), str(scaled), json=json)


@task(word="--node")
def replace(
    set_: Set = (),
    node: Annotated[str, "worker3, 3, or the id of an instance"] = "",
    force: Annotated[bool, "also replace a node of a live run, after stopping it with a checkpoint"] = False,
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Replace a worker: terminate its instance, and wait until a new one has joined.

    Example: fab replace worker3
    """
    session, progress = Session(PROJECT, set_, key=key), progress_printer(json=json)
    if not node:
        raise UsageError("--node", None, "must name the worker to replace; `fab status` lists the instances")
    with session.connect() as master:
        task = GroupTask(session=session, master=master, name="fab replace", yes=yes, force=force, report=progress)
        done = replacing.replace(task, node)
    print_result(dataclasses.asdict(done), str(done), json=json)


@task()
def release(set_: Set = (), json: Json = False, yes: Yes = False) -> None:
    """
    Allow workers again after the budget stopped all of them.

    Raise budget_usd first. Otherwise the cost has no limit, because the budget raises its alarm only once a month.

    Example: fab release && fab scale 4
    """
    session = Session(PROJECT, set_)
    stack, progress = session.stack.name, progress_printer(json=json)
    with doing("asking AWS for the limits"):
        found = worker_limits.read(session.aws, stack)
    budget = next((limit for limit in found if limit.kind == "budget"), None)
    if budget is None:
        raise DeepcdkError(
            f"stack {stack} has no budget that terminates workers, so there is nothing to release",
            remedy="`fab status` shows the limits of the stack",
        )
    held = bool(count_messages(session.aws, budget))
    if held:
        confirm("allow workers again, although the budget is spent.", yes=yes)
        purge_messages(session.aws, budget)
        wait_until_released(session.aws, stack, progress)
        progress("released; `fab scale` and `fab train` can add workers again")
    else:
        progress("the budget does not block workers")
    if json:
        print_result({"stack": stack, "released": held}, json=True, indent=None)
