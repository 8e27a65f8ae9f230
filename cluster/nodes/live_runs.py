"""Check for live runs before their nodes are terminated, and stop the runs properly if that is forced."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from agent.spec.run_states import QUEUED, STOP_GRACE_S
from cluster.aws.stack import DELETING
from cluster.errors import DeepcdkError, HeldNodesError, LiveRunError, NoStackError
from cluster.nodes.occupancy import describe_runs
from stacks.config import MASTER

if TYPE_CHECKING:
    from cluster.session import Session


class StopsRunError(DeepcdkError):
    """Report that an action would stop live runs, or might. `run_ids` is empty if the live runs are unknown."""

    def __init__(self, doing: str, run_ids: Sequence[str], why_unknown: str, reasons: Sequence[str]) -> None:
        self.run_ids, self.reasons = tuple(run_ids), tuple(reasons)
        if run_ids:
            several = bool(run_ids[1:])
            what = f"{describe_runs(run_ids)} {'are' if several else 'is'} live, and {doing} would stop "
            what += "them" if several else "it"
            attach = ", ".join(f"`fab attach --run {run_id}`" for run_id in run_ids)
            stop = ", ".join(f"`fab stop --run {run_id}`" for run_id in run_ids)
            remedy = (
                f"wait for the end ({attach}), stop {'each' if several else 'it'} with a checkpoint ({stop}), or "
                f"repeat with --force, which gives each run {STOP_GRACE_S:g} s for its checkpoint"
            )
        else:
            what = f"{doing} would stop a live run, and it is unknown whether a run is live: {why_unknown}"
            remedy = (
                "repeat when the master answers `fab status`, or repeat with --force, which ends a live run without a "
                "new checkpoint"
            )
        super().__init__("\n  ".join([what, *reasons]), remedy=remedy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveRuns:
    """The live runs, or why they are unknown."""

    run_ids: tuple[str, ...] = ()
    """Oldest first; empty if no run is live, or if that is unknown."""
    starters: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """Who started each run, by run id: `user`, `host` and `identity`. Runs of unknown origin are missing."""
    why_unknown: str = ""
    """Why it is unknown whether runs are live; "" if it is known."""


def find_live_runs(session: Session) -> LiveRuns:
    """Find the live runs. Without a master there are none, because a run needs its supervisor on the master.

    Does not raise if the master cannot be asked: the result's `why_unknown` has the reason.
    """
    try:
        if not _has_master(session):
            return LiveRuns()
        with session.connect() as master:
            occupied = session.supervisor(master).occupancy()
            return LiveRuns(run_ids=occupied.live, starters=occupied.starters)
    except NoStackError:
        return LiveRuns()
    except DeepcdkError as error:
        return LiveRuns(why_unknown=str(error.what).partition("\n")[0])


def _has_master(session: Session) -> bool:
    """Return whether the cluster has a running master, so that runs may be live."""
    stack = session.deployed_stack
    if not (stack.master_group and stack.efs_mount) or stack.status == DELETING:
        return False  # its creation failed, or it is being deleted
    return any(i.role == MASTER and i.state == "running" for i in session.load_inventory().instances)


@contextlib.contextmanager
def every_node_held(
    session: Session, task: str, doing: str, reasons: Sequence[str], *, force: bool, report: Callable[[str], None]
) -> Iterator[None]:
    """Hold every node during the block, so that no run starts between the check for live runs and the nodes'
    termination.

    `task` is the task's name for messages, `doing` names the action, and `reasons` explain its effects. Nothing is held
    without a running master. Raises StopsRunError if a run has started since the check. If the master does not answer,
    raises StopsRunError too; with `force`, only reports a warning. Raises HeldNodesError if another machine is about to
    terminate nodes.
    """
    with contextlib.ExitStack() as opened:
        try:
            if _has_master(session):
                master = opened.enter_context(session.connect())
                opened.enter_context(session.supervisor(master).hold(task, {}, every=True))
        except LiveRunError as error:
            raise StopsRunError(doing, [error.run_id], "", reasons) from None
        except (HeldNodesError, NoStackError):
            raise
        except DeepcdkError as error:
            why = str(error.what).partition("\n")[0]
            if not force:
                raise StopsRunError(doing, (), why, reasons) from None
            report(f"warning: the master cannot reserve the nodes, so a run that starts in the meantime is lost: {why}")
        yield


def check_live_runs(session: Session, doing: str, reasons: Sequence[str], *, force: bool) -> LiveRuns:
    """Return the live runs, which the action would stop. With `force`, they may be unknown (`why_unknown`).

    Without `force`, raises StopsRunError if there are live runs, or if it is unknown whether there are. `doing` names
    the action, and `reasons` explain its effects. Stops nothing.
    """
    found = find_live_runs(session)
    if (found.run_ids or found.why_unknown) and not force:
        raise StopsRunError(doing, found.run_ids, found.why_unknown, reasons)
    return found


def stop_runs(session: Session, run_ids: Sequence[str], report: Callable[[str], None]) -> None:
    """Stop these live runs, with checkpoints. First remove all waiting runs from the queue, so that none starts next.

    Does nothing if `run_ids` is empty. Waits until the runs have ended. `report` gets a line for each run.
    """
    if not run_ids:
        return
    with session.connect() as master:
        supervisor = session.supervisor(master)
        waiting = [str(each["run_id"]) for each in supervisor.runs() if each["state"] == QUEUED]
        for each in reversed(waiting):
            report(f"removing run {each} from the queue")
            supervisor.stop(each, 0.0)
        for run_id in run_ids:
            report(f"stopping run {run_id}, with {STOP_GRACE_S:g} s for its checkpoint")
            supervisor.stop(run_id, STOP_GRACE_S)
