"""The scheduler: a process on the master that starts the first run in the queue as soon as enough nodes are free.

The order is strict: while the first run waits, no later run starts, even if it needs fewer nodes. The duration of a run
is not known in advance, so a run that overtakes could delay the first one for any time. Small runs could make a large
one wait forever.

The scheduler exits when no run is queued and no live run may continue after the loss of its supervisor. It detects such
a loss within seconds. Each command of `agent.supervisor.cli`, and each supervisor every few seconds, starts a scheduler
if it is missing. When the master boots, the nodes' registry runs a script that also starts one
(`agent.supervisor.boot_hook`). So neither a killed scheduler nor a reboot loses a run. The scheduler also prepares the
handover to another master (`agent.supervisor.handover`).
"""

from __future__ import annotations

import functools
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Final

from agent.errors import SpecError, describe
from agent.files.atomic_write import open_to_append
from agent.files.file_lock import AlreadyLockedError
from agent.runs import database, liveness, run_queue, trusted_spec
from agent.runs import stored_state as states
from agent.runs.node_claims import LiveRunError, Runs
from agent.runs.stored_state import State
from agent.spec.nodes import NODES_PATH
from agent.supervisor import current_master, sweep_queue, then_stop
from agent.supervisor.boot_hook import scheduler_command
from agent.supervisor.current_master import wait_until_settled
from agent.supervisor.free_nodes import on_free_nodes
from agent.supervisor.handover import Handover
from agent.supervisor.lost_supervisor import log, recover_lost_runs
from agent.supervisor.lost_workers import LostWorkers
from agent.supervisor.submit import check_trees, detach

TAKEN_OVER_S: Final = 1200.0
"""Maximum wait until a booting master has its predecessor's data. The master gives up after half of this time."""
LOCK: Final = ".scheduler"
"""Name of the scheduler's lock beside the locks of the runs. It is not a valid run id."""
POLL_S: Final = 1.0
WATCH_S: Final = 2.0
"""Interval of checks for lost supervisors while no run is queued."""
NODES_PATIENCE_S: Final = 180.0
"""How long the first run in the queue waits if the cluster has too few nodes. A replacement needs this time to join."""


def ensure_running(runs: Runs) -> None:
    """Start a scheduler if runs are queued or watched, and no scheduler is running. Does not wait. Raises OSError."""
    if not (run_queue.ids() or runs.watched()):
        return
    # In a transaction: a scheduler that exits checks for runs and unlocks in one, so it cannot miss a run added before.
    with database.transaction():
        if liveness.is_held(LOCK):
            return
    with open_to_append(runs.root / ".scheduler.log") as log:
        command = scheduler_command(runs)
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def run(
    runs: Runs,
    ending: threading.Event | None = None,
    *,
    nodes_path: str = NODES_PATH,
    poll_s: float = POLL_S,
    watch_s: float = WATCH_S,
) -> None:
    """Start the queued runs in order, restart runs that lose their supervisor, and have lost workers replaced.

    First waits for the data of a previous master. Returns without starting runs if this wait fails, or if another
    scheduler is running. Otherwise it returns in these cases:

    - No run is queued or watched (`Runs.watched`). It then stops the workers if a run requested this.
    - Another master has replaced this one.
    - `ending` is set, because the master shuts down. Supervisors exit during a shutdown, so no run may start.

    `poll_s` is the interval of checks with queued runs, `watch_s` without, in seconds.
    """
    if not wait_until_settled(TAKEN_OVER_S):
        log(current_master.UNKNOWN)
        return
    try:
        liveness.hold(LOCK)
    except AlreadyLockedError:
        return
    try:
        with LostWorkers(runs, log, nodes_path=nodes_path).watched():
            has_ended = _schedule(runs, ending, nodes_path, poll_s, watch_s)
    finally:
        liveness.let_go(LOCK)
    if has_ended and (told := then_stop.stop_workers(runs)):
        log(told)


def _schedule(runs: Runs, ending: threading.Event | None, nodes_path: str, poll_s: float, watch_s: float) -> bool:
    """Run the scheduler's loop. Return True when no run is queued or watched; the scheduler's lock is then released.

    Return False if another master has replaced this one, or if `ending` is set. The parameters are as for `run`.
    """
    since, first = time.monotonic(), ""
    handover = Handover(runs, log)
    warn = functools.lru_cache(maxsize=256)(log)  # Log an invalid line in the list of nodes once, not in each round.
    while not (ending and ending.is_set()):
        if other := current_master.successor(runs.root):
            log(current_master.replaced_message(other))
            return False
        handover.keep_up()
        states.import_copies(runs.root)  # If a backup has replaced the database, runs may have ended since.
        recover_lost_runs(runs, between=handover.keep_up)
        handover.keep_up()
        with database.transaction():
            waiting = run_queue.ids()
            if not waiting and not runs.watched() and handover.is_settled:
                # Unlock in the transaction, because no other process can add a run meanwhile. The command that adds
                # the next run then starts a scheduler, which gets the lock.
                liveness.let_go(LOCK)
                return True
        if not waiting:
            first = ""
            time.sleep(watch_s)
            continue
        if waiting[0] != first or runs.live():
            first, since = waiting[0], time.monotonic()
        if not _start_first(runs, first, nodes_path, warn, patient=time.monotonic() - since < NODES_PATIENCE_S):
            time.sleep(poll_s)
    return False


def _start_first(runs: Runs, run_id: str, nodes_path: str, warn: Callable[[str], None], *, patient: bool) -> bool:
    """Start the first run in the queue, `run_id`, if enough nodes are free. Return whether it left the queue.

    It also leaves the queue, as failed or stopped, if it cannot start or the first run of its sweep failed. If the
    cluster has too few nodes, the run keeps waiting while `patient`, and fails otherwise. `warn` is called with a
    message for each invalid line in the list of nodes.
    """
    directory = runs[run_id]
    try:
        queued = trusted_spec.read(run_id)
        check_trees(queued)
    except (SpecError, OSError) as error:
        run_queue.finish(directory, "failed", f"could not start from the queue: {describe(error)}")
        return True
    if held := sweep_queue.reason_to_hold(runs, queued):
        run_queue.finish(directory, "stopped", held)
        return True
    if waits := sweep_queue.reason_to_wait(runs, queued):
        run_queue.set_reason(directory, waits)
        return False
    try:
        spec = on_free_nodes(queued, runs.held(), warn, nodes_path)
        runs.claim(spec.run_id, spec.hosts or None)
    except LiveRunError:
        run_queue.set_reason(directory, "")  # The place in the queue is shown instead.
        return False
    except (SpecError, OSError) as error:
        if patient:
            run_queue.set_reason(directory, f"waiting: {describe(error)}")
            return False
        then_stop.remember(runs, queued.stop_policy)
        advice = f"to start it then: `fab resume {run_id}`"
        run_queue.finish(directory, "failed", f"could not start from the queue: {describe(error)}; {advice}")
        return True
    state = State.starting(spec)
    if not run_queue.dequeue(directory, state, trusted_spec.accept(spec)):
        runs.release(run_id)  # The run was removed from the queue meanwhile.
        return True
    try:
        detach(runs, directory)
    except (OSError, RuntimeError) as error:
        directory.mark_failed(f"could not start: {describe(error)}")
        runs.release(run_id)
    return True
