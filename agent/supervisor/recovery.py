"""Take up the runs whose supervisor was lost, killed or gone with a reboot of the master: restart them, or end them.

A run goes on under a new supervisor, which begins with a restart as after any fault of the machine, where it may
(`agent.runs.going_on`), and nothing stands in the way. Any other one is stored as failed. Only the scheduler, of which
there is one, calls this.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agent.files.listing import read_regular
from agent.remote import secret_files
from agent.remote.secret_files import SecretsError
from agent.runs import accepted_spec, going_on, liveness, record, spending
from agent.runs.directory import RunDirectory, State
from agent.runs.store import Runs
from agent.spec.run import RunSpec
from agent.supervisor import then_stop
from agent.supervisor.archive import Copier
from agent.supervisor.lost_run import kill, mark_lost
from agent.supervisor.lost_supervisor import LOST
from agent.supervisor.notification import Notifier
from agent.supervisor.restart import describe_restart
from agent.supervisor.submit import detach


def recover_lost_runs(runs: Runs, between: Callable[[], object] = lambda: None) -> None:
    """Restart each run whose supervisor is gone, as after a reboot; else kill its remains and store that it failed.

    `between` is called after each, which may have taken a minute.
    """
    for run_id in runs.lost():
        try:
            obstacle = _restart(runs, runs[run_id])
        except (OSError, RuntimeError, ValueError) as error:
            obstacle = str(error) or type(error).__name__
        if obstacle is not None:
            _fail(runs, run_id, obstacle)
        between()


def _restart(runs: Runs, directory: RunDirectory) -> str | None:
    """Leave a new supervisor behind for a lost run; return why that cannot be, "" where it is not to be.

    None: it has one, or was taken up otherwise. Raises OSError, RuntimeError and ValueError, also as the reason.
    """
    if not directory.goes_on:
        return ""
    spec = accepted_spec.read(directory.run_id)
    spending.settle(directory, time.time())
    if obstacle := _obstacle(directory, spec):
        return obstacle
    lost, me = directory.lost_state(), liveness.this_process()
    fault = liveness.end_cause(spec.run_id) or LOST
    if lost is None or not runs.take_over(spec.run_id):
        return None
    made = going_on.restarts_made(directory.path)
    taken = _taken(lost, me, describe_restart(len(made) + 1, spec.restarts, fault))
    if not directory.take_over(taken, of=lost.owner):
        runs.release(spec.run_id)  # `fab stop` has ended it meanwhile.
        return None
    # It counts before it begins: a supervisor that never comes as far as its own record would be restarted for ever.
    begun = {"time": time.time(), "for": fault, "waited_s": 0.0, "hosts": [host.name for host in spec.hosts]}
    try:
        record.write_course(directory, {**going_on.read_course(directory.path), "restarts": [*made, begun]})
        detach(runs, directory, lost=fault)
    except (OSError, RuntimeError) as error:
        if not directory.mark_failed(f"it could not be restarted: {error}", of=me):
            return None  # A supervisor that has begun was lost again.
        runs.release(spec.run_id)
        return ""
    return None


def _taken(lost: State, owner: str, reason: str) -> State:
    """Return the state of a lost run that this process has taken up."""
    return dataclasses.replace(
        lost, state="starting", owner=owner, updated=time.time(), reason=reason, exit_code=None, last_lines=()
    )


def _obstacle(directory: RunDirectory, spec: RunSpec) -> str:
    """Return what keeps a lost run from going on by itself, with the remedy; "" where nothing does."""
    spent = spending.read(directory)
    if spent and spec.bounds.share(spent.seconds, spent.usd) >= 1:
        return f"it has reached {spec.bounds.describe(spent.seconds, spent.usd)}"
    try:
        secret_files.read(secret_files.master_directory(Path.home()), spec.run_id, spec.secrets)
    except SecretsError as error:
        return f"{error}, to `fab resume {spec.run_id}`"
    return ""


def _fail(runs: Runs, run_id: str, obstacle: str) -> None:
    """Kill what is left of a lost run, store that it has failed, and tell of it."""
    with contextlib.suppress(OSError, ValueError):
        kill(runs, RunSpec.from_json(read_regular(runs[run_id].spec).decode("utf-8")))
    with contextlib.suppress(OSError, ValueError):
        then_stop.remember(runs, accepted_spec.read(run_id).stop_policy)
    mark_lost(runs[run_id], obstacle)
    if not runs.release_lost(run_id):
        return  # It has been resumed meanwhile.
    with contextlib.suppress(OSError, ValueError):
        commands = accepted_spec.read(run_id).notify
        notifier = Notifier(commands, run_id, runs[run_id].path, log)
        notifier.tell_end(runs[run_id].effective_state())
        notifier.finish()
    with contextlib.suppress(OSError, ValueError):
        record.write_record(runs[run_id], runs[run_id].effective_state())
        Copier(runs[run_id]).finish()


def log(text: str) -> None:
    """Write a line to the scheduler's log."""
    print(text, file=sys.stderr, flush=True)
