"""Reserve nodes for a task on a laptop that is about to terminate them, so that no run starts on them meanwhile.

`python3 -m agent.supervisor.hold --root /mnt/efs/runs [--every] TASK [NAME=INSTANCE ...]` holds the named nodes, or
every node. Without nodes, it holds the size of the worker group. EC2 Auto Scaling has no compare-and-set, so two tasks
that change the size at the same time would undo each other's change. The hold lasts until the standard input is closed,
which happens when the task ends or its connection breaks. Without the hold, another laptop could start a run after the
task has checked for live runs, and the run would lose its nodes. Exit status 3: a run or another task has the nodes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import secrets
import select
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from agent.runs import follow
from agent.runs.claims import ClaimedNode
from agent.runs.store import LiveRunError, Runs
from agent.spec.states import make_run_id
from agent.supervisor import current_master, handover_wait
from agent.supervisor.handover_wait import wait_until_settled

HEARTBEAT_S: Final = 15.0
"""Interval of messages to the laptop. Without them, neither side would notice a broken connection."""
PASSING_S: Final = 20.0
"""Maximum wait for another task that changes the group's size."""
CLEARING_S: Final = 300.0
"""Maximum wait for a run that has ended, while it clears its nodes and is copied to the bucket."""
LIVE_RUN: Final = 3


def claim(
    runs: Runs, task: str, nodes: Sequence[ClaimedNode] | None, on_wait: Callable[[], None] = lambda: None
) -> str:
    """Claim nodes for a task, and return the claim's id. `nodes`: None stands for every node, () for the group's size.

    `task` is the task's name for messages. If a run that has ended, or a task that changes the size, still has the
    nodes, wait for it and call `on_wait` repeatedly. Raises LiveRunError if other runs or tasks have the nodes, also
    after the wait.
    """
    hold_id = make_run_id(datetime.datetime.now(datetime.UTC), task, secrets.token_hex(2))
    began = time.monotonic()
    while True:
        try:
            runs.claim(hold_id, nodes, task=task)
            return hold_id
        except LiveRunError as error:
            is_clearing = any(runs.is_over(each.run_id) for each in error.held)
            is_passing = any(each.nodes == () for each in error.held)
            limit_s = CLEARING_S if is_clearing else PASSING_S if is_passing else 0.0
            if time.monotonic() - began >= limit_s:
                raise
        on_wait()
        time.sleep(follow.POLL_S)


def hold(runs: Runs, task: str, nodes: Sequence[ClaimedNode] | None, stdin_fd: int) -> None:
    """Reserve nodes until the input `stdin_fd` is closed, and release them then. `nodes` and `task` are as for `claim`.

    Prints JSON lines: `holding` when the nodes are reserved, and `alive` as a heartbeat before and after that. Raises
    LiveRunError if other runs or tasks have the nodes.
    """
    said_at = time.monotonic()

    def on_wait() -> None:
        nonlocal said_at
        if time.monotonic() >= said_at + HEARTBEAT_S:
            said_at = time.monotonic()
            _emit({"alive": True})

    hold_id = claim(runs, task, nodes, on_wait)
    try:
        _emit({"holding": True})
        while not (select.select([stdin_fd], [], [], HEARTBEAT_S)[0] and not os.read(stdin_fd, 1024)):
            _emit({"alive": True})
    finally:
        runs.release(hold_id)


def _emit(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def _node(text: str) -> ClaimedNode:
    name, _, instance_id = text.partition("=")
    return ClaimedNode(name=name, instance_id=instance_id)


def main(argv: Sequence[str] | None = None) -> int:
    """Hold the nodes in `argv` until standard input is closed; print messages as JSON, or an error.

    Return the exit status: 0, 1 if this master cannot hold nodes now, or LIVE_RUN if a run or another task has them.
    """
    parser = argparse.ArgumentParser(prog="agent.supervisor.hold", description=__doc__)
    parser.add_argument("--root", required=True, help="directory of all runs, on the shared file system")
    parser.add_argument("--every", action="store_true", help="hold every node")
    parser.add_argument("task", help="name of the task for messages, such as `fab scale`")
    parser.add_argument("nodes", nargs="*", type=_node, metavar="NAME=INSTANCE")
    options = parser.parse_args(argv)
    nodes = None if options.every else tuple(options.nodes)
    if not wait_until_settled():
        print(handover_wait.UNKNOWN, file=sys.stderr)
        return 1
    if other := current_master.successor(Path(options.root)):
        print(current_master.replaced_message(other), file=sys.stderr)
        return 1
    current_master.take(Path(options.root))
    try:
        hold(Runs(root=Path(options.root)), options.task, nodes, sys.stdin.fileno())
    except LiveRunError as error:
        _emit(error.to_document())
        return LIVE_RUN
    except BrokenPipeError:  # The laptop has disconnected, which ends the hold.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
