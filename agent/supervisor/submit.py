"""Start, resume or queue a run: claim its nodes, write its directory, and leave a supervisor behind."""

from __future__ import annotations

import dataclasses
import functools
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent.errors import UPLOAD_AGAIN, SpecError, describe
from agent.files.atomic_write import new_directory, open_to_append
from agent.files.safe_read import read_regular
from agent.polling import wait_until
from agent.runs import database, liveness, run_log, run_messages, run_queue, run_record, trusted_spec
from agent.runs.node_claims import LiveRunError, Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.nodes import NODES_PATH, Node
from agent.spec.run import RunSpec
from agent.spec.run_states import QUEUED
from agent.spec.submission import Submission
from agent.supervisor import resume_or_remove
from agent.supervisor.free_nodes import on_free_nodes, read_nodes
from agent.supervisor.stop_run import kill

READY_TIMEOUT_S: Final = 20.0
START_TIMEOUT_S: Final = 120.0
"""Maximum wait until a new supervisor is ready. On a loaded master it takes seconds."""


def start(runs: Runs, submission: Submission) -> RunDirectory:
    """Claim the run's nodes, create its directory, and leave a supervisor behind that outlives this process.

    If another run has one of its nodes, the run gets other free nodes. Raises LiveRunError if too few nodes are free or
    other runs are queued, FileExistsError if the run id is taken, SpecError if a node has left or a pushed tree is
    missing, and RuntimeError if the supervisor does not start.
    """
    spec = submission.spec
    _check_new(runs, spec)
    spec = _claim(runs, spec)
    submission = dataclasses.replace(submission, spec=spec)
    try:
        _check_there(spec)
        with database.transaction():  # `fab clean` removes trees only in a transaction.
            check_trees(spec)
            directory = _make(runs, submission, State.starting(spec))
        detach(runs, directory)
    except BaseException:
        runs.release(spec.run_id)
        raise
    return directory


def enqueue(runs: Runs, submission: Submission) -> RunDirectory:
    """Create the run's directory and append the run to the queue.

    Raises FileExistsError if the run id is taken, and SpecError if a pushed tree is missing.
    """
    spec = submission.spec
    _check_new(runs, spec)
    runs.root.mkdir(parents=True, exist_ok=True)

    with database.transaction():
        check_trees(spec)
        return _make(runs, submission, _queued(spec))


def resume(runs: Runs, submission: Submission) -> RunDirectory:
    """Resume an ended run in its own directory, and leave a supervisor behind.

    Processes of earlier attempts are killed. Raises LiveRunError if the run is live, too few nodes are free or other
    runs are queued, FileNotFoundError if the run does not exist, and SpecError if it has succeeded, a node has left or
    a pushed tree is missing. If the supervisor does not start, RuntimeError is raised, and the run is stored as failed.
    """
    spec, run_id = _claim(runs, submission.spec), submission.spec.run_id
    directory = runs[run_id]
    try:
        _check_there(spec)
        _check_resumable(directory, spec)
        _clear(runs, directory, spec)
        run_record.write_origin(directory, submission.origin)
        again = State.starting(spec)
        with database.transaction():
            check_trees(spec)
            resume_or_remove.reopen(directory, spec, again)
        try:
            detach(runs, directory)
        except BaseException as error:
            directory.mark_failed(f"could not resume: {describe(error)}")
            raise
    except BaseException:
        runs.release(run_id)
        raise
    return directory


def enqueue_again(runs: Runs, submission: Submission) -> RunDirectory:
    """Queue an ended run, to be resumed in its own directory. Processes of earlier attempts are killed.

    Raises LiveRunError if the run is live or queued, FileNotFoundError if it does not exist, and SpecError if it has
    succeeded or a pushed tree is missing.
    """
    spec = submission.spec
    directory = runs[spec.run_id]
    _check_ended(runs, directory)
    _check_resumable(directory, spec)
    _clear(runs, directory, spec)  # Not in the transaction, because this waits for hosts.
    with database.transaction():
        _check_ended(runs, directory)
        check_trees(spec)
        run_record.write_origin(directory, submission.origin)
        resume_or_remove.reopen(directory, spec, _queued(spec))
    return directory


def _check_ended(runs: Runs, directory: RunDirectory) -> None:
    """Raise LiveRunError if a run is live or queued, or is being resumed."""
    state = directory.effective_state()
    if not state.has_ended or directory.run_id in runs.live():
        raise LiveRunError(directory.run_id, state.state)


def _check_new(runs: Runs, spec: RunSpec) -> None:
    if runs[spec.run_id].path.exists():
        raise FileExistsError(
            f"run {spec.run_id} already exists, in {runs[spec.run_id].path}; repeat the command, which makes another id"
        )
    check_trees(spec)


def _check_queue(runs: Runs) -> None:
    """Raise LiveRunError if runs are queued, because the first of them must start next."""
    if waiting := run_queue.ids():
        raise LiveRunError(waiting[0], QUEUED, runs.held())


def _check_resumable(directory: RunDirectory, spec: RunSpec) -> None:
    if directory.effective_state().state == "succeeded":
        raise SpecError(f"run {directory.run_id} has succeeded; there is nothing left to resume")
    check_trees(spec)


def _check_there(spec: RunSpec) -> None:
    """Raise SpecError if a node of the run is no longer in the master's list of nodes.

    It may have left since the laptop read the list, for example by `fab scale` on another laptop. Nothing is checked if
    the list cannot be read.
    """
    try:
        there = {node.instance_id for node in read_nodes(lambda _: None, NODES_PATH)}
    except OSError:
        return  # Without a list, only the laptop knows the nodes.
    if gone := [host.name for host in spec.hosts if host.instance_id not in there]:
        names = ", ".join(gone)
        raise SpecError(f"{names} left the cluster while run {spec.run_id} was being launched; repeat the command")


def check_trees(spec: RunSpec) -> None:
    """Raise SpecError if a pushed tree that a run needs is missing on the shared file system."""
    wheels = [f"{spec.efs_mount}/payloads/{spec.wheels}"] if spec.wheels else []
    for tree in (spec.agent_directory, spec.program_directory if spec.program else spec.payload_directory, *wheels):
        if not Path(tree).is_dir():
            raise SpecError(f"{tree}, which run {spec.run_id} needs, is missing; {UPLOAD_AGAIN}")


def _clear(runs: Runs, directory: RunDirectory, spec: RunSpec) -> None:
    """Kill processes that a crash left of an earlier attempt, on its hosts and on the hosts of the new `spec`.

    They have the same run id, so preparing the nodes would spare them.
    """
    before = RunSpec.from_json(read_regular(directory.spec).decode("utf-8"))
    kill(runs, dataclasses.replace(spec, hosts=_union(before.hosts, spec.hosts)))


def _queued(spec: RunSpec) -> State:
    return dataclasses.replace(State.starting(spec), state=QUEUED)


def _make(runs: Runs, submission: Submission, state: State) -> RunDirectory:
    """Create a run's directory with its origin, spec and state, atomically, and accept its spec.

    The directory is closed to ranks until the run starts.
    """
    directory = runs[submission.spec.run_id]
    with new_directory(directory.path) as partial:
        run_record.write_origin(RunDirectory(path=partial), submission.origin)
        (partial / "spec.json").write_text(trusted_spec.accept(submission.spec), encoding="utf-8")
        RunDirectory(path=partial).write_state(state)
        RunDirectory(path=partial).close_to_ranks()
    return directory


def _union(before: Sequence[Node], after: Sequence[Node]) -> tuple[Node, ...]:
    """Return the hosts of two attempts. If both have a host with the same name, only the later one is returned."""
    return tuple({node.name: node for node in (*before, *after)}.values())


def _claim(runs: Runs, spec: RunSpec) -> RunSpec:
    """Claim a run's nodes, or other free nodes if another run has some of them; return its spec on these nodes.

    Waits up to READY_TIMEOUT_S for a run that has just ended and is still clearing its nodes. Raises LiveRunError.
    """
    check, warned = functools.partial(_check_queue, runs), functools.lru_cache(maxsize=256)(_warn)

    def claimed() -> RunSpec | None:
        try:
            found = _place(runs, spec, warned)
            runs.claim(found.run_id, found.hosts or None, check)
        except LiveRunError as error:
            # A run that has ended releases its nodes in a moment. If several hold nodes, any of them may be enough.
            if error.state != QUEUED and any(runs.is_over(claim.run_id) for claim in error.held):
                return None
            raise
        return found

    if found := wait_until(claimed, timeout_s=READY_TIMEOUT_S, poll_s=run_messages.POLL_S):
        return found
    runs.claim(spec.run_id, spec.hosts or None, check)
    return spec


def _place(runs: Runs, spec: RunSpec, warn: Callable[[str], None]) -> RunSpec:
    """Return a run's spec on free nodes. It keeps its own nodes, which the laptop has checked, if no run holds them.

    Raises LiveRunError if too few nodes are free, or if other nodes cannot be chosen from the master's list.
    """
    held = [claim for claim in runs.held() if claim.run_id != spec.run_id]
    if not any(claim.has(host) for claim in held for host in spec.hosts):
        return spec
    try:
        return on_free_nodes(spec, held, warn, NODES_PATH)
    except (OSError, SpecError):  # the list of nodes is missing or too short, so the run can only be queued
        raise LiveRunError(held[0].run_id, "live", held) from None


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def detach(runs: Runs, directory: RunDirectory, *, lost: str = "") -> None:
    """Start the supervisor in a new session, pass it the run's lock, and wait until it is ready.

    This process no longer holds the lock afterwards. `lost` describes what happened to the run's lost supervisor, if
    this one replaces it. Raises RuntimeError if the supervisor is not ready within START_TIMEOUT_S, or exits.
    """
    ready, ready_fd = os.pipe()
    lock_fd = liveness.descriptor_of(directory.run_id)
    with open_to_append(directory.log) as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "agent.supervisor.cli",
                "--root",
                str(runs.root),
                "supervise",
                directory.run_id,
                str(ready_fd),
                str(lock_fd),
                *(["--lost", lost] if lost else []),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[ready_fd, lock_fd],
            start_new_session=True,
        )
    os.close(ready_fd)
    with os.fdopen(ready, "rb") as pipe:
        if not select.select([pipe], [], [], START_TIMEOUT_S)[0]:
            process.kill()
            raise RuntimeError(
                f"the supervisor did not start within {START_TIMEOUT_S:g} s; its log on the master is {directory.log}; "
                f"to try again: `fab resume {directory.run_id}`"
            )
        if pipe.read() != b"ready":
            again, lines = f"`fab resume {directory.run_id}`", "\n".join(run_log.last_lines(directory.log))
            raise RuntimeError(f"the supervisor did not start; to try again: {again}. The end of its log:\n{lines}")
    liveness.let_go(directory.run_id)  # Now only the supervisor holds the lock.
