"""Recover runs that lost their supervisor, for example because it was killed or the master rebooted.

If the run may continue (`agent.runs.run_directory`), it gets a new supervisor, which begins with a restart as after any
other machine fault. All other lost runs are stored as failed. Only the scheduler calls `recover_lost_runs`, and a
master has only one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from agent.errors import describe
from agent.files.safe_read import is_listed, read_regular
from agent.remote import secret_files
from agent.remote.secret_files import SecretsError
from agent.runs import database, liveness, run_cost, run_record, trusted_spec
from agent.runs.node_claims import Runs
from agent.runs.run_directory import SUPERVISOR_DIED, RunDirectory
from agent.runs.stored_state import State
from agent.spec.nodes import Node
from agent.spec.run import TRAINING, RunSpec
from agent.supervisor import then_stop
from agent.supervisor.bucket_copy import Copier
from agent.supervisor.notification import Notifier
from agent.supervisor.restart import Outcome, describe_restart
from agent.supervisor.stop_run import kill
from agent.supervisor.submit import detach

RESULT_FILE: Final = "result.json"
LOST: Final = "its supervisor was lost"
WANTED: Final = "wanted"
"""Key in the run's timeline: the number of hosts that the run started with."""
LEFT: Final = "left"
"""Key in the run's timeline: hosts of earlier attempts that the current attempt does not use."""


def recover_lost_runs(runs: Runs, between: Callable[[], object] = lambda: None) -> None:
    """Restart each run that lost its supervisor, or kill its processes and store that it failed.

    A run fails if it may not or cannot continue. `between` is called after each run, because one run may take a minute.
    """
    for run_id in runs.lost():
        try:
            obstacle = _restart(runs, runs[run_id])
        except (OSError, RuntimeError, ValueError) as error:
            obstacle = describe(error) or type(error).__name__
        if obstacle is not None:
            _fail(runs, run_id, obstacle)
        between()


def _restart(runs: Runs, directory: RunDirectory) -> str | None:
    """Start a new supervisor for a lost run. Return None, or the reason why the run cannot be restarted.

    Return None also if another process has taken over the run. Return "" if the run may not continue, or if its
    supervisor did not start, which is stored as the run's failure. Raises OSError, RuntimeError or ValueError; the
    caller uses the exception as the reason.
    """
    if not directory.continues:
        return ""
    spec = trusted_spec.read(directory.run_id)
    run_cost.settle_spent(directory, time.time())
    if obstacle := _obstacle(directory, spec):
        return obstacle
    fault = liveness.end_cause(spec.run_id) or LOST
    made = directory.restarts_made()
    with database.transaction():
        lost = directory.lost_state()
        if lost is None or not runs.take_over(spec.run_id):
            return None  # `fab stop` has stopped it meanwhile, or a user has resumed it.
        directory.write_state(_taken(lost, describe_restart(len(made) + 1, spec.restarts, fault)))
    # Count the restart before it begins: otherwise a supervisor that always fails early would be restarted forever.
    begun = {"time": time.time(), "for": fault, "waited_s": 0.0, "hosts": [host.name for host in spec.hosts]}
    try:
        run_record.write_course(directory, {**directory.course(), "restarts": [*made, begun]})
        detach(runs, directory, lost=fault)
    except (OSError, RuntimeError) as error:
        directory.mark_failed(f"the run could not be restarted: {describe(error)}")
        runs.release(spec.run_id)
        return ""
    return None


def _taken(lost: State, reason: str) -> State:
    """Return the state of a lost run after this process has taken it over: `starting`, with this reason."""
    return dataclasses.replace(
        lost, state="starting", updated=time.time(), reason=reason, exit_code=None, last_lines=()
    )


def _obstacle(directory: RunDirectory, spec: RunSpec) -> str:
    """Return why a lost run cannot continue: a reached limit, or missing secrets with advice; "" if it can."""
    spent = run_cost.read_spent(directory)
    if spent and spec.bounds.share(spent.seconds, spent.usd) >= 1:
        reached = spec.bounds.describe(spent.seconds, spent.usd)
        return f"it has reached {reached}; to continue, give `fab resume {spec.run_id}` a higher limit"
    try:
        secret_files.read(secret_files.master_directory(Path.home()), spec.run_id, spec.secrets)
    except SecretsError as error:
        return str(error)
    return ""


def _fail(runs: Runs, run_id: str, obstacle: str) -> None:
    """Kill the remaining processes of a lost run, store that it has failed, notify the user, and copy it to the bucket.

    `obstacle` is the reason why the run cannot be restarted, or "". If a user has resumed the run meanwhile, nobody is
    notified and nothing is copied. Most errors are ignored; an incomplete copy is logged. A requested stop of the
    workers is remembered.
    """
    with contextlib.suppress(OSError, ValueError):
        kill(runs, RunSpec.from_json(read_regular(runs[run_id].spec).decode("utf-8")))
    with contextlib.suppress(OSError, ValueError):
        then_stop.remember(runs, trusted_spec.read(run_id).stop_policy)
    runs.mark_lost(run_id, obstacle)
    if not runs.release_lost(run_id):
        return  # A user has resumed it meanwhile.
    with contextlib.suppress(OSError, ValueError):
        commands = trusted_spec.read(run_id).notify
        notifier = Notifier(commands, run_id, runs[run_id].path, log)
        notifier.tell_end(runs[run_id].effective_state())
        notifier.finish()
    with contextlib.suppress(OSError, ValueError):
        run_record.write_record(runs[run_id], runs[run_id].effective_state())
        if trouble := Copier(runs[run_id]).finish():
            log(
                f"run {run_id}: the copy in the bucket is missing or incomplete: {trouble}; to save the results before "
                f"`fab down`: `fab fetch --run {run_id}`"
            )


def log(text: str) -> None:
    """Write a line to the scheduler's log."""
    print(text, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LostSupervisor:
    """The progress of a run under its lost supervisor."""

    fault: str
    """What happened to the supervisor, as text."""
    reason: str
    """The reason in the run's state: the number of the restart, for the time until the new supervisor sets another."""
    started: float
    """`State.started` of the run, which does not change at a restart."""
    course: dict[str, Any]
    restarts: list[dict[str, Any]]
    """The restarts made so far. The timeline already contains one more: the restart that begins now."""
    wanted: int
    """Number of hosts that the run started with."""
    left: dict[str, Node]
    """Hosts of earlier attempts that the last attempt did not use, by name."""

    def outcome(self, directory: RunDirectory, spec: RunSpec) -> Outcome:
        """Return the outcome of the last attempt, after its remaining processes were killed: success or failure.

        Ranks continue without a supervisor. The ranks of a recipe may have completed the training: they write the file
        with the result last, so its existence means success. Otherwise the attempt failed because of `fault`.
        """
        if spec.command[:2] == TRAINING and is_listed(directory.path / RESULT_FILE):
            return Outcome(state="succeeded")
        reason = SUPERVISOR_DIED if self.fault == LOST else f"{SUPERVISOR_DIED}: {self.fault}"
        return Outcome(state="failed", reason=reason, fault=self.fault)


def read_lost(directory: RunDirectory, spec: RunSpec, fault: str) -> LostSupervisor:
    """Read the data of a run's lost supervisor from its directory and its stored state.

    `fault` describes what happened to the supervisor. A malformed timeline counts as empty. Raises FileNotFoundError if
    the run does not exist.
    """
    course, state = directory.course(), directory.stored_state()
    wanted, names = course.get(WANTED), {host.name for host in spec.hosts}
    return LostSupervisor(
        fault=fault,
        started=state.started,
        reason=state.reason,
        course=course,
        restarts=directory.restarts_made()[:-1],
        wanted=wanted if type(wanted) is int and wanted > 0 else len(spec.hosts),
        left={name: host for name, host in _hosts(course.get(LEFT)).items() if name not in names},
    )


def document_of(left: Mapping[str, Node]) -> list[dict[str, Any]]:
    """Return the hosts that a run no longer uses as JSON values, for its timeline."""
    return [dataclasses.asdict(node) for node in left.values()]


def _hosts(documents: Any) -> dict[str, Node]:
    """Return the hosts in the output of `document_of`, by name. Invalid ones are left out."""
    found = {}
    for each in documents if isinstance(documents, list) else ():
        with contextlib.suppress(TypeError, ValueError):
            node = Node(**each)
            found[node.name] = node
    return found
