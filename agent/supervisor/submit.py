"""Start or resume a run: take the lock, write its directory, leave a supervisor behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.deadline import wait_until
from agent.errors import SpecError
from agent.files.atomic_write import new_directory
from agent.runs import follow, record
from agent.runs.directory import RunDirectory, State
from agent.runs.run_queue import RunQueue
from agent.runs.store import LiveRunError, Runs
from agent.spec.nodes import Node
from agent.spec.provenance import Submission
from agent.spec.run import RunSpec
from agent.spec.states import QUEUED
from agent.supervisor import resume as resuming
from agent.supervisor.lost_run import kill, take_lock
from agent.supervisor.supervisor import first_state

READY_TIMEOUT_S: Final = 20.0


def start(runs: Runs, submission: Submission) -> RunDirectory:
    """Make the run's directory, take the lock and leave a supervisor behind that outlives this process.

    Raises LiveRunError, also where runs wait in the queue, FileExistsError for a run id that is taken, SpecError for a
    tree that is not there, or RuntimeError when the supervisor does not start.
    """
    spec = submission.spec
    _check_new(runs, spec)
    _check_queue(runs)
    _claim(runs, spec.run_id)
    try:
        directory = _make(runs, submission, first_state(spec))
        detach(runs, directory)
    except BaseException:
        runs.release(spec.run_id)
        raise
    return directory


def enqueue(runs: Runs, submission: Submission) -> RunDirectory:
    """Make the run's directory and put it into the queue. Raises FileExistsError or SpecError as `start`."""
    spec = submission.spec
    _check_new(runs, spec)
    runs.root.mkdir(parents=True, exist_ok=True)
    directory = _make(runs, submission, _queued(spec))
    RunQueue(runs=runs).add(spec.run_id)
    return directory


def resume(runs: Runs, submission: Submission) -> RunDirectory:
    """Resume an ended run in its own directory, and leave a supervisor behind.

    Raises LiveRunError while any run is live or queued, FileNotFoundError without the run, SpecError where it cannot
    go on.
    """
    spec, run_id = submission.spec, submission.spec.run_id
    directory = runs[run_id]
    _check_queue(runs)
    _claim(runs, run_id)
    try:
        _check_resumable(directory, spec)
        _clear(runs, directory, spec)
        record.write_origin(directory, submission.origin)
        again = first_state(spec)
        resuming.reopen(directory, spec, again)
        try:
            detach(runs, directory)
        except BaseException as error:
            directory.mark_failed(f"it could not be resumed: {error}")
            raise
    except BaseException:
        runs.release(run_id)
        raise
    return directory


def enqueue_again(runs: Runs, submission: Submission) -> RunDirectory:
    """Queue an ended run, to be resumed in its own directory. Raises as `resume`."""
    spec = submission.spec
    directory = runs[spec.run_id]
    state = directory.effective_state()
    if not state.has_ended or runs.live() == spec.run_id:
        raise LiveRunError(spec.run_id, state.state)
    _check_resumable(directory, spec)
    _clear(runs, directory, spec)
    record.write_origin(directory, submission.origin)
    resuming.reopen(directory, spec, _queued(spec))
    RunQueue(runs=runs).add(spec.run_id)
    return directory


def _check_new(runs: Runs, spec: RunSpec) -> None:
    if runs[spec.run_id].path.exists():
        raise FileExistsError(f"{runs[spec.run_id].path} exists already")
    check_trees(spec)


def _check_queue(runs: Runs) -> None:
    """Raise LiveRunError while runs wait, since the first of them is the next to start."""
    if waiting := RunQueue(runs=runs).ids():
        raise LiveRunError(runs.live() or waiting[0], "live" if runs.live() else QUEUED)


def _check_resumable(directory: RunDirectory, spec: RunSpec) -> None:
    resuming.check_resumable(directory, directory.effective_state())
    check_trees(spec)


def check_trees(spec: RunSpec) -> None:
    """Raise SpecError where a tree that a run needs is not on the shared file system."""
    for tree in (spec.agent_directory, spec.program_directory if spec.program else spec.payload_directory):
        if not Path(tree).is_dir():
            raise SpecError(f"{tree}, which run {spec.run_id} needs, is no longer there")


def _clear(runs: Runs, directory: RunDirectory, spec: RunSpec) -> None:
    """Kill what a crash left of an earlier attempt: it has the same id, so preparing the nodes would spare it."""
    before = RunSpec.from_json(directory.spec.read_text(encoding="utf-8"))
    kill(runs, dataclasses.replace(spec, hosts=_union(before.hosts, spec.hosts)))


def _queued(spec: RunSpec) -> State:
    return dataclasses.replace(first_state(spec), state=QUEUED)


def _make(runs: Runs, submission: Submission, state: State) -> RunDirectory:
    """Make a run's directory atomically."""
    directory = runs[submission.spec.run_id]
    with new_directory(directory.path) as partial:
        record.write_origin(RunDirectory(path=partial), submission.origin)
        (partial / "spec.json").write_text(submission.spec.to_json(), encoding="utf-8")
        RunDirectory(path=partial).write_state(state)
    return directory


def _union(before: Sequence[Node], after: Sequence[Node]) -> tuple[Node, ...]:
    """Return the hosts of two attempts, each name once; of one name, the later attempt's host."""
    return tuple({node.name: node for node in (*before, *after)}.values())


def _claim(runs: Runs, run_id: str) -> None:
    """Take the lock, waiting for a run that has just ended and is still clearing its nodes. Raises LiveRunError."""

    def is_claimed() -> bool:
        try:
            take_lock(runs, run_id)
        except LiveRunError as error:
            with contextlib.suppress(OSError, ValueError):
                if runs[error.run_id].effective_state().has_ended:
                    return False
            raise
        return True

    if not wait_until(is_claimed, timeout_s=READY_TIMEOUT_S, poll_s=follow.POLL_S):
        take_lock(runs, run_id)


def detach(runs: Runs, directory: RunDirectory) -> None:
    """Start the supervisor in a session of its own, with no descriptor of ours, and wait until it holds the lock."""
    ready, ready_fd = os.pipe()
    with directory.log.open("ab") as log:
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "agent.supervisor.cli",
                "--root",
                str(runs.root),
                "supervise",
                directory.run_id,
                str(ready_fd),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[ready_fd],
            start_new_session=True,
        )
    os.close(ready_fd)
    with os.fdopen(ready, "rb") as pipe:
        if pipe.read() != b"ready":
            raise RuntimeError("the supervisor did not start:\n" + "\n".join(directory.last_lines()))
