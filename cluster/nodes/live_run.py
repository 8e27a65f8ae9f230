"""Check for a live run before something terminates its nodes, and stop it in order if that is forced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent.spec.states import QUEUED, STOP_GRACE_S
from cluster.errors import DeepcdkError, NoStackError
from stacks.config import MASTER

if TYPE_CHECKING:
    from cluster.session import Session


class EndsRunError(DeepcdkError):
    """Report that something would end a live run, or might; carries the run's id, "" if it is unknown."""

    def __init__(self, doing: str, run_id: str, why_unknown: str, reasons: Sequence[str]) -> None:
        self.run_id, self.reasons = run_id, tuple(reasons)
        if run_id:
            what = f"run {run_id} is live, and {doing} would end it"
            remedy = (
                f"wait for its end (`fab attach --run {run_id}`), end it with a checkpoint (`fab stop --run {run_id}`),"
                f" or repeat with --force: it then gets {STOP_GRACE_S:g} s for its checkpoint"
            )
        else:
            what = f"{doing} would end a live run, and it is not known whether there is one: {why_unknown}"
            remedy = "restore the connection to the master, or repeat with --force, which ends any run"
        super().__init__("\n  ".join([what, *reasons]), remedy=remedy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveRun:
    """The live run, if there is one."""

    run_id: str
    """"" if none is live, or it is not known."""
    why_unknown: str = ""
    """Why it is not known; "" if it is."""


def find_live_run(session: Session) -> LiveRun:
    """Find the live run. Without a master there is none, since the supervisor runs there and ends with it."""
    try:
        stack = session.deployed_stack
        if not (stack.master_group and stack.efs_mount):
            return LiveRun(run_id="")  # Its creation failed.
        masters = [i for i in session.load_inventory().instances if i.role == MASTER and i.state == "running"]
        if not masters:
            return LiveRun(run_id="")
        with session.connect() as master:
            return LiveRun(run_id=session.supervisor(master).live())
    except NoStackError:
        return LiveRun(run_id="")
    except DeepcdkError as error:
        return LiveRun(run_id="", why_unknown=str(error.what).partition("\n")[0])


def check_live_run(session: Session, doing: str, reasons: Sequence[str], *, force: bool) -> str:
    """Return the id of the live run that would end, "" without one. Raises EndsRunError unless forced."""
    found = find_live_run(session)
    if (found.run_id or found.why_unknown) and not force:
        raise EndsRunError(doing, found.run_id, found.why_unknown, reasons)
    return found.run_id


def stop_runs(session: Session, run_id: str, report: Callable[[str], None]) -> None:
    """Take the waiting runs out of the queue, so that none starts next, and stop the live one with a checkpoint."""
    if not run_id:
        return
    with session.connect() as master:
        supervisor = session.supervisor(master)
        waiting = [str(each["run_id"]) for each in supervisor.runs() if each["state"] == QUEUED]
        for each in reversed(waiting):
            report(f"taking run {each} out of the queue")
            supervisor.stop(each, 0.0)
        report(f"stopping run {run_id}, with {STOP_GRACE_S:g} s for its checkpoint")
        supervisor.stop(run_id, STOP_GRACE_S)
