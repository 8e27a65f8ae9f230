"""Watch over a run's ranks on this node, in the background: end those past a bound, and those that are frozen.

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
from agent.launch.frozen_watch import FrozenWatch
from agent.launch.rank_states import RankStates
from agent.runs.directory import RunDirectory
from agent.spec.run import RunSpec

POLL_S: Final = 1.0
START_S: Final = 30.0
"""How long after its start the first rank may take to show itself."""
_NICENESS: Final = 10
"""It needs a moment each second; what computes goes first."""


def watch(
    states: RankStates,
    bound: BoundWatch | None,
    frozen: FrozenWatch | None,
    *,
    poll_s: float = POLL_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Watch until the run has no rank here; return whether its ranks were ended at the bound."""
    began, has_begun = clock(), False
    while True:
        found = states.look()
        has_ranks = any(each.rank is not None for each in found)
        if not has_ranks and (has_begun or clock() - began >= START_S):
            return False
        has_begun = has_begun or has_ranks
        if frozen:
            frozen.look(found)
        if bound and bound.look():
            return True
        sleep(poll_s)


def main(argv: Sequence[str]) -> int:
    """Watch over the ranks of a run on this node."""
    directory, node = RunDirectory(path=Path(argv[0])), argv[1]
    spec = RunSpec.from_json(directory.spec.read_text(encoding="utf-8"))
    os.nice(_NICENESS)
    os.umask(0o022)  # What it writes is for the supervisor, who is another user.
    states = RankStates(spec.runs_root, spec.run_id)
    bound = BoundWatch(directory) if spec.bounds else None
    frozen = FrozenWatch(directory, node, spec.frozen_after_s, waits=states.waits) if spec.frozen_after_s else None
    watch(states, bound, frozen)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
