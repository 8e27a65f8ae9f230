"""A node's own watch over the bound of a run: its ranks end when that is well past, also where the master is dead.

The supervisor on the master keeps the bound, and ends the ranks first. This is the backstop, a part of
`agent.launch.node_watch`. It reads again when the bound is reached before it acts, for a restart may have moved that.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from typing import Final

from agent.remote.processes import signal_run
from agent.runs import spending
from agent.runs.directory import RunDirectory
from agent.runs.spending import NODE_MARGIN_S

READ_S: Final = 30.0
"""How long to wait before reading again where no bound can be read: from a cache that an earlier attempt filled."""
_KILL_WAIT_S: Final = 5.0


class BoundWatch:
    """The watch over one run's bound."""

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
