"""Watch over a run's ranks on this node, in the background: end those past a bound, and those that are stuck.

    python -m agent.launch.node_watch RUN_DIRECTORY NODE    # by the node's first rank (`agent.launch.rank`)

It lives as long as the run has ranks here. What stops this watch too, as `kill -STOP -1` does, it cannot notice.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent.launch.stall_watch import StallWatch
from agent.remote.processes import RunProcess, processes, signal_run
from agent.runs import spending
from agent.runs.directory import RunDirectory
from agent.runs.spending import NODE_MARGIN_S
from agent.spec.run import RunSpec

POLL_S: Final = 2.0
START_S: Final = 30.0
"""How long after its start the first rank may take to show itself."""
_NICENESS: Final = 10
"""What computes goes first."""
READ_S: Final = 30.0
"""How long to wait before reading again where no bound can be read: from a cache that an earlier attempt filled."""
_KILL_WAIT_S: Final = 5.0


class BoundWatch:
    """The watch over one run's bound: its ranks end when that is well past, even if the master is dead.

    The supervisor on the master keeps the bound and ends the ranks first. This is the backstop. It reads the bound
    again before it acts, because a restart may have moved it.
    """

    def __init__(
        self, directory: RunDirectory, *, margin_s: float = NODE_MARGIN_S, now: Callable[[], float] = time.time
    ) -> None:
        self._directory, self._margin_s, self._now = directory, margin_s, now
        self._ends = math.inf
        self._reads_at = -math.inf

    def look(self) -> bool:
        """End the run's ranks here where the bound is past by the margin; return whether they were ended."""
        now = self._now()
        if math.isinf(self._ends):
            if now >= self._reads_at:
                self._ends, self._reads_at = self._read() or math.inf, now + READ_S
            return False
        if self._ends + self._margin_s > now:
            return False
        later = self._read()
        if later is not None and later + self._margin_s > now:
            self._ends = later
            return False
        root, run_id = str(self._directory.path.parent), self._directory.run_id
        signal_run(root, run_id=run_id, others=False, ranks_only=True, number=signal.SIGKILL, wait_s=_KILL_WAIT_S)
        return True

    def _read(self) -> float | None:
        """Return when the bound is reached, in seconds since 1970; None where the run has ended, or none is read."""
        spent = spending.read(self._directory)
        return spent.ends if spent else None


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
