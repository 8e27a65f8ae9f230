"""End the ranks of a bounded run on this node when its bound is well past, also where the master is dead or cut off.

    python -m agent.launch.bound_watch RUN_DIRECTORY    # in the background, by the node's first rank

The supervisor on the master keeps the bound, and ends the ranks first. This is the backstop: it lives as long as the
run has ranks here, and reads again when the bound is reached before it acts, for a restart may have moved that.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.launch.program_setup import local_place
from agent.remote.processes import processes, select, signal_run
from agent.runs import spending
from agent.runs.directory import RunDirectory
from agent.runs.spending import NODE_MARGIN_S
from agent.spec.run import RunSpec

POLL_S: Final = 30.0
START_S: Final = 30.0
"""How long after its start the first rank may take to show itself."""


def start(spec: RunSpec, environ: Mapping[str, str]) -> None:
    """Leave the watch behind, from the first rank of a node, before it turns into its program."""
    if not spec.bounds or local_place(environ)[0] != 0:
        return
    # Without the run's variables, by which its processes are found and ended; the child leaves a process of its own, of
    # which the program, that may wait for any child, learns nothing.
    subprocess.run(
        [sys.executable, "-m", "agent.launch.bound_watch", spec.run_directory],
        cwd=spec.agent_directory,
        env={"PATH": os.defpath, "PYTHONPATH": spec.agent_directory},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )


def watch(
    directory: RunDirectory,
    *,
    margin_s: float = NODE_MARGIN_S,
    poll_s: float = POLL_S,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> bool:
    """Wait until the run has no rank here, or its bound is past by the margin; return whether ranks were ended."""
    root, run_id, began = str(directory.path.parent), directory.run_id, now()
    ends = math.inf
    while True:
        if not select(list(processes(root)), run_id=run_id, others=False, ranks_only=True) and now() - began >= START_S:
            return False
        if ends + margin_s <= now():
            later = _ends(directory)
            if later is None or later + margin_s <= now():
                signal_run(root, run_id=run_id, others=False, ranks_only=True, number=signal.SIGKILL, wait_s=5.0)
                return True
            ends = later
        elif math.isinf(ends):  # It may have been read from a cache that an earlier attempt filled.
            ends = _ends(directory) or math.inf
        sleep(min(poll_s, max(ends + margin_s - now(), 0.1)))


def _ends(directory: RunDirectory) -> float | None:
    """Return when the bound is reached, in seconds since 1970; None where the run has ended, or this cannot be read."""
    spent = spending.read(directory)
    return spent.ends if spent else None


def main(argv: Sequence[str]) -> int:
    """Watch in a process of its own, detached from the rank that started it."""
    if os.fork():
        return 0
    os.setsid()
    watch(RunDirectory(path=Path(argv[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
