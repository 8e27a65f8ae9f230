"""The task that lets workers be again after the budget was spent."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from cluster import bounds
from cluster.errors import DeepcdkError
from cluster.session import Session, confirm
from cluster.tasks.terms import PROJECT, SET, YES, guarded, say


@task(iterable=["set_"], help={"set": SET, "yes": YES})
@guarded
def release(c: Context, set_: list[str], yes: bool = False) -> None:
    """
    Let workers be again after the budget was spent and ended them all.

    Raise budget_usd first, or they are on your own account: the budget tells only once a month.

    Example: fab release && fab scale 4
    """
    session = Session(PROJECT, set_)
    stack = session.stack.name
    budget = next((bound for bound in bounds.read(session.aws, stack) if bound.kind == "budget"), None)
    if budget is None:
        raise DeepcdkError(f"stack {stack} has no budget that ends workers", remedy="`fab status` shows its bounds")
    if not bounds.messages(session.aws, budget):
        say("the budget holds no workers back")
        return
    confirm("let workers be again, although the budget is spent.", yes=yes)
    bounds.release(session.aws, budget)
    bounds.await_end(session.aws, stack, budget, say)
    say("released; `fab scale` and `fab train` grow the group again")
