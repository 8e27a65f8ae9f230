"""The task that allows workers again after the budget stopped them."""

from __future__ import annotations

from cluster.aws import limits
from cluster.cli import PROJECT
from cluster.cli.task import Json, Set, Yes, task
from cluster.errors import DeepcdkError
from cluster.session import Session, confirm
from cluster.terminal.output import print_result, progress_printer
from cluster.terminal.status_line import doing


@task()
def release(set_: Set = (), json: Json = False, yes: Yes = False) -> None:
    """
    Allow workers again after the budget stopped them all.

    Raise budget_usd first, or nothing limits them: the budget alarms once a month only.

    Example: fab release && fab scale 4
    """
    session = Session(PROJECT, set_)
    stack, progress = session.stack.name, progress_printer(json=json)
    with doing("asking AWS for the limits"):
        found = limits.read(session.aws, stack)
    budget = next((limit for limit in found if limit.kind == "budget"), None)
    if budget is None:
        raise DeepcdkError(
            f"stack {stack} has no budget that terminates workers", remedy="`fab status` shows its limits"
        )
    held = bool(limits.count_messages(session.aws, budget))
    if held:
        confirm("allow workers again, although the budget is spent.", yes=yes)
        limits.purge_messages(session.aws, budget)
        limits.wait_for_end(session.aws, stack, progress)
        progress("released; `fab scale` and `fab train` grow the group again")
    else:
        progress("the budget holds no workers back")
    if json:
        print_result({"stack": stack, "released": held}, json=True, indent=None)
