"""Stop all workers after the runs that requested it (`--then-stop`), and all queued runs, have ended.

The master executes the scaling policy that sets the size of the worker group to zero. Its role may execute the policies
of this group, but not set its size, so an attacker on the master cannot start nodes this way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent.files.atomic_write import write_atomically
from agent.remote.ssh import Completed, execute
from agent.runs import database, run_queue
from agent.runs.node_claims import Runs
from agent.staging.aws_cli import aws_command

TRIES: Final = 8
"""Number of attempts, over about a minute. If half of the API calls fail, all attempts fail in one of 256 cases."""
PAUSE_S: Final = 8.0
TIMEOUT_S: Final = 60.0
STOPPED: Final = "stopping all workers"
NOT_STOPPED: Final = "the workers could not be stopped"


def command(policy: str) -> list[str]:
    """Build the command that executes the scaling policy with this ARN."""
    words = ("--policy-name", policy, "--metric-value", "1", "--breach-threshold", "0")
    return aws_command("autoscaling", "execute-policy", *words, region=policy.split(":")[3])


def remember(runs: Runs, policy: str) -> None:
    """Store that the workers must be stopped when no run is live or queued. Raises OSError.

    `policy` is the ARN of the scaling policy that stops them; "" changes nothing.
    """
    if policy:
        write_atomically(_path(runs), policy)


def stop_workers(
    runs: Runs,
    policy: str = "",
    *,
    by: str = "",
    run: Callable[[Sequence[str], float], Completed] = execute,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Stop the workers if the run that has ended, or an earlier one, requested it and no run is live or queued.

    `policy` is the ARN of the scaling policy that stops the workers, or "" if the run that has ended did not request
    this. The call of AWS is tried up to TRIES times, which may take minutes; then the request is forgotten, even if all
    calls failed. With `by`, that run's id, the run claims every node, so that no run starts while the workers stop. A
    run that is queued meanwhile waits for nodes, as after a loss of workers. Return what was done, or why not, as text;
    "" without a request. A text about failed calls begins with NOT_STOPPED.
    """
    remember(runs, policy)
    with database.transaction():
        policy = _remembered(runs)
        if not policy:
            return ""
        if waiting := run_queue.ids():
            return f"the workers are kept for run {waiting[0]}, which is queued"
        # If two runs end at the same time, the first to get here stops the workers: the other's end is already stored.
        if live := [run_id for run_id in runs.live() if not runs.is_over(run_id)]:
            return f"the workers are kept for run {live[0]}, which is live"
        with contextlib.suppress(FileNotFoundError):
            _path(runs).unlink()
        if by:
            with contextlib.suppress(RuntimeError):  # The database was damaged and lost the claim.
                runs.claim_every_node(by)
    done = Completed(status=1, output="")
    for attempt in range(TRIES):
        if attempt:
            sleep(PAUSE_S)
        done = run(command(policy), TIMEOUT_S)
        if done.status == 0:
            return STOPPED
    return f"{NOT_STOPPED} and still cost money: {done.last_line}; to stop them: `fab scale 0`"


def _path(runs: Runs) -> Path:
    return runs.root / ".then-stop"


def _remembered(runs: Runs) -> str:
    try:
        policy = _path(runs).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return policy if policy.startswith("arn:") and policy.count(":") >= 5 else ""
