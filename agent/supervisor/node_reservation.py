"""Reserve nodes for a task on a laptop that is about to terminate them, so that no run starts on them meanwhile.

A hold is on some nodes, on every node, or on the size of the worker group. EC2 Auto Scaling has no compare-and-set, so
two tasks that change the size at the same time would undo each other's change. The hold lasts until the standard input
is closed, which happens when the task ends or its connection breaks. Without the hold, another laptop could start a run
after the task has checked for live runs, and the run would lose its nodes.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
import select
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from agent.runs import run_messages
from agent.runs.node_claims import ClaimedNode, LiveRunError, Runs
from agent.spec.run_id import make_run_id

HEARTBEAT_S: Final = 15.0
"""Interval of messages to the laptop. Without them, neither side would notice a broken connection."""
PASSING_S: Final = 20.0
"""Maximum wait for another task that changes the group's size."""
CLEARING_S: Final = 300.0
"""Maximum wait for a run that has ended, while it clears its nodes and is copied to the bucket."""


def claim(
    runs: Runs, task: str, nodes: Sequence[ClaimedNode] | None, on_wait: Callable[[], None] = lambda: None
) -> str:
    """Claim nodes for a task, and return the claim's id. `nodes`: None stands for every node, () for the group's size.

    `task` is the task's name for messages. If a run that has ended still has the nodes, wait up to CLEARING_S; for a
    task that changes the size, up to PASSING_S. During the wait, `on_wait` is called repeatedly. Raises LiveRunError if
    other runs or tasks have the nodes, also after the wait.
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
        time.sleep(run_messages.POLL_S)


def hold(runs: Runs, task: str, nodes: Sequence[ClaimedNode] | None, stdin_fd: int) -> None:
    """Reserve nodes until the input `stdin_fd` is closed, and release them then.

    `task` is the task's name for messages. `nodes`: None stands for every node, () for the size of the worker group.
    Waits up to CLEARING_S for nodes of a run that has ended. Prints JSON lines: `holding` when the nodes are reserved,
    and `alive` as a heartbeat before and after that. Raises LiveRunError if other runs or tasks have the nodes.
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
