"""The task that allows workers again after the budget stopped them."""

from __future__ import annotations

from cluster.aws import guard
from cluster.aws.guard_release import count_messages, purge_messages, wait_for_end
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
    with doing("asking AWS for the bounds"):
        found = guard.read(session.aws, stack)
    budget = next((bound for bound in found if bound.kind == "budget"), None)
    if budget is None:
        raise DeepcdkError(f"stack {stack} has no budget that ends workers", remedy="`fab status` shows its bounds")
    held = bool(count_messages(session.aws, budget))
    if held:
        confirm("allow workers again, although the budget is spent.", yes=yes)
        purge_messages(session.aws, budget)
        wait_for_end(session.aws, stack, progress)
        progress("released; `fab scale` and `fab train` grow the group again")
    else:
        progress("the budget holds no workers back")
    if json:
        print_result({"stack": stack, "released": held}, json=True, indent=None)
