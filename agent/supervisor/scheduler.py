"""The scheduler: one process on the master that starts each queued run once it is first and its nodes are there.

It lives while runs wait. Every command of the supervisor makes sure that one runs, and the nodes' registry runs the
hook that `write_boot_hook` writes when the master boots: neither a killed scheduler nor a reboot loses a queued run.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from agent.errors import SpecError
from agent.files.atomic_write import write_atomically
from agent.runs import record
from agent.runs.run_queue import RunQueue
from agent.runs.store import LiveRunError, Runs
from agent.spec.nodes import NODES_PATH
from agent.spec.run import RunSpec
from agent.supervisor import then_stop
from agent.supervisor.archive import Copier
from agent.supervisor.live_nodes import on_live_nodes
from agent.supervisor.lost_run import kill, mark_lost, take_lock
from agent.supervisor.notification import Notifier
from agent.supervisor.submit import check_trees, detach
from agent.supervisor.supervisor import first_state

POLL_S: Final = 1.0
NODES_PATIENCE_S: Final = 180.0
"""How long the first run in the queue waits for its nodes: a replaced one takes about as long to join."""
HOOK: Final = ".at-boot"


def command(runs: Runs) -> list[str]:
    """Build the scheduler's command line; it runs in the agent's tree."""
    return [sys.executable, "-m", "agent.supervisor.cli", "--root", str(runs.root), "schedule"]


def write_boot_hook(runs: Runs) -> None:
    """Write the script that a booting master runs: it marks a lost run as failed, and starts the queued runs."""
    path = runs.root / HOOK
    text = f"#!/bin/sh\ncd {shlex.quote(str(Path.cwd()))} && exec {shlex.join(command(runs))}\n"
    with contextlib.suppress(FileNotFoundError):
        if path.read_text(encoding="utf-8") == text:
            return
    write_atomically(path, text)
    path.chmod(0o755)


def ensure_running(runs: Runs) -> None:
    """Start a scheduler if runs wait and none is running."""
    if not RunQueue(runs=runs).ids():
        return
    with _scheduler_lock(runs) as alone:
        if not alone:
            return
    with (runs.root / ".scheduler.log").open("ab") as log:
        subprocess.Popen(command(runs), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def run(runs: Runs, *, nodes_path: str = NODES_PATH, poll_s: float = POLL_S) -> None:
    """Start the waiting runs, one after the other; return when none waits, or at once if another scheduler runs."""
    queue, since = RunQueue(runs=runs), time.monotonic()
    warn = functools.lru_cache(maxsize=256)(_log)  # A line of the nodes file that is left out stays so for many rounds.
    with _scheduler_lock(runs) as lock:
        if lock is None:
            return
        fail_lost_run(runs)
        first = ""
        while True:
            with runs.guard():
                waiting = queue.ids()
                if not waiting:
                    # Unlock while the guard keeps others from adding a run: the command that adds the next one then
                    # starts a scheduler, which gets the lock.
                    fcntl.flock(lock, fcntl.LOCK_UN)
                    break
            if waiting[0] != first or runs.live():
                first, since = waiting[0], time.monotonic()
            _start_first(queue, first, nodes_path, warn, patient=time.monotonic() - since < NODES_PATIENCE_S)
            time.sleep(poll_s)
    if not runs.live() and (told := then_stop.stop_workers(runs)):  # else the live run does it at its end
        _log(told)


def fail_lost_run(runs: Runs) -> None:
    """Kill what is left of a run whose supervisor is gone, as after a reboot, and store that it has failed."""
    if not (run_id := runs.lost()):
        return
    with contextlib.suppress(OSError, ValueError):
        spec = RunSpec.from_json(runs[run_id].spec.read_text(encoding="utf-8"))
        kill(runs, spec)
        then_stop.remember(runs, spec.stop_policy)
    mark_lost(runs[run_id])
    runs.release(run_id)
    with contextlib.suppress(OSError, ValueError):
        notifier = Notifier(spec_commands(runs, run_id), run_id, runs[run_id].path, _log)
        notifier.tell_end(runs[run_id].effective_state())
        notifier.finish()
    with contextlib.suppress(OSError, ValueError):
        record.write_record(runs[run_id], runs[run_id].effective_state())
        Copier(runs[run_id]).finish()


def spec_commands(runs: Runs, run_id: str) -> tuple[str, ...]:
    """Return the commands that tell of a run. Raises OSError and SpecError, which is a ValueError."""
    return RunSpec.from_json(runs[run_id].spec.read_text(encoding="utf-8")).notify


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _start_first(queue: RunQueue, run_id: str, nodes_path: str, warn: Callable[[str], None], *, patient: bool) -> None:
    """Start the first run, if nothing else is live and its nodes are there."""
    runs = queue.runs
    if runs.live():
        return
    try:
        queued = RunSpec.from_json(runs[run_id].spec.read_text(encoding="utf-8"))
        check_trees(queued)
    except (SpecError, OSError) as error:
        queue.finish(run_id, "failed", f"its turn came, but {error}")
        return
    try:
        spec = on_live_nodes(queued, warn, nodes_path)
    except (SpecError, OSError) as error:
        if patient:
            queue.set_reason(run_id, f"waiting: {error}")
        else:
            then_stop.remember(runs, queued.stop_policy)
            queue.finish(
                run_id, "failed", f"its turn came, but {error}; `fab scale` adds nodes, `fab resume` repeats it"
            )
        return
    try:
        take_lock(runs, run_id)
    except LiveRunError:
        return  # It has ended and still clears its nodes.
    state = first_state(spec)
    if not queue.start(state, spec.to_json()):
        runs.release(run_id)  # It was taken out of the queue meanwhile.
        return
    try:
        detach(runs, runs[run_id])
    except (OSError, RuntimeError) as error:
        runs[run_id].mark_failed(f"it could not be started: {error}")
        runs.release(run_id)


@contextlib.contextmanager
def _scheduler_lock(runs: Runs) -> Iterator[IO[str] | None]:
    """Take the scheduler's lock for a block; yield None where another process has it."""
    # The name that older versions used: never two schedulers at once during an upgrade.
    with (runs.root / ".keeper").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield file
