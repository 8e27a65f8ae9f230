"""Watch over a run's ranks on this node, in the background: end those past a bound, and those that are stuck.

    python -m agent.launch.node_watch RUN_DIRECTORY NODE    # by the node's first rank (`agent.launch.rank`)

It lives as long as the run has ranks here. What stops this watch too, as `kill -STOP -1` does, it cannot notice.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent.launch.bound_watch import BoundWatch
from agent.launch.stall_watch import StallWatch
from agent.remote.processes import RunProcess, processes
from agent.runs.directory import RunDirectory
from agent.spec.run import RunSpec

POLL_S: Final = 2.0
START_S: Final = 30.0
"""How long after its start the first rank may take to show itself."""
_NICENESS: Final = 10
"""What computes goes first."""


def watch(
    look: Callable[[], Sequence[RunProcess]],
    bound: BoundWatch | None,
    stall: StallWatch | None,
    *,
    poll_s: float = POLL_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Watch until the run has no rank here; return whether its ranks were ended at the bound.

    `look` returns the run's processes on this node.
    """
    began, has_begun = clock(), False
    while True:
        found = [each for each in look() if each.is_rank]
        if not found and (has_begun or clock() - began >= START_S):
            return False
        has_begun = has_begun or bool(found)
        if stall:
            stall.look(found)
        if bound and bound.look():
            return True
        sleep(poll_s)


def main(argv: Sequence[str]) -> int:
    """Watch over the ranks of a run on this node."""
    directory, node = RunDirectory(path=Path(argv[0])), argv[1]
    spec = RunSpec.from_json(directory.spec.read_text(encoding="utf-8"))
    os.nice(_NICENESS)
    os.umask(0o022)  # What it writes is for the supervisor, who is another user.
    watch(
        lambda: [each for each in processes(spec.runs_root) if each.run_id == spec.run_id],
        BoundWatch(directory) if spec.bounds else None,
        StallWatch(directory, node, spec.stall_after_s) if spec.stall_after_s else None,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
