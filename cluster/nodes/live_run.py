"""Whether a run is live on the cluster, before something ends its nodes; and its orderly end where that is forced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from agent.spec.states import QUEUED
from cluster.errors import DeepcdkError, NoStackError
from stacks.config import MASTER

if TYPE_CHECKING:
    from cluster.session import Session

GRACE_S: Final = 30.0
"""What a run gets for its last checkpoint before its nodes are taken by --force."""


class EndsRunError(DeepcdkError):
    """Report that something would end a live run, or might; carries the run's id, "" where nobody knows."""

    def __init__(self, doing: str, run_id: str, why_unknown: str, reasons: Sequence[str]) -> None:
        self.run_id, self.reasons = run_id, tuple(reasons)
        if run_id:
            what = f"run {run_id} is live, and {doing} would end it"
            remedy = (
                f"wait for its end (`fab attach --run {run_id}`), end it with a checkpoint (`fab stop --run {run_id}`),"
                f" or repeat with --force: it then gets {GRACE_S:g} s for its checkpoint"
            )
        else:
            what = f"{doing} would end a live run, and whether there is one cannot be told: {why_unknown}"
            remedy = "mend the way to the master, or repeat with --force, which ends whatever runs"
        super().__init__("\n  ".join([what, *reasons]), remedy=remedy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """Say what is live."""

    run_id: str
    """"" where nothing is, or nobody knows."""
    why_unknown: str = ""
    """Why it cannot be told; "" where it can."""


def look(session: Session) -> Found:
    """Find out whether a run is live. Without a master there is none, for the supervisor is there and ends with it."""
    try:
        stack = session.deployed_stack
        if not (stack.master_group and stack.efs_mount):
            return Found(run_id="")  # It has never been whole.
        masters = [i for i in session.inventory.instances if i.role == MASTER and i.state == "running"]
        if not masters:
            return Found(run_id="")
        with session.connect() as master:
            return Found(run_id=session.supervisor(master).live())
    except NoStackError:
        return Found(run_id="")
    except DeepcdkError as error:
        return Found(run_id="", why_unknown=str(error.what).partition("\n")[0])


def allow(session: Session, doing: str, reasons: Sequence[str], *, force: bool) -> str:
    """Return the id of the live run that would be ended, "" without one. Raises EndsRunError unless forced."""
    found = look(session)
    if (found.run_id or found.why_unknown) and not force:
        raise EndsRunError(doing, found.run_id, found.why_unknown, reasons)
    return found.run_id


def end(session: Session, run_id: str, tell: Callable[[str], None]) -> None:
    """Take the runs that wait out of the queue, or one would begin next, and stop the live one with a checkpoint."""
    if not run_id:
        return
    with session.connect() as master:
        supervisor = session.supervisor(master)
        waiting = [str(each["run_id"]) for each in supervisor.runs() if each["state"] == QUEUED]
        for each in reversed(waiting):
            tell(f"taking run {each} out of the queue")
            supervisor.stop(each, 0.0)
        tell(f"stopping run {run_id}, with {GRACE_S:g} s for its checkpoint")
        supervisor.stop(run_id, GRACE_S)
