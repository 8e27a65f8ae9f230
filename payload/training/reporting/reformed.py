"""The report that the ranks of an elastic run have formed anew: an event, a line, and word to the launcher."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from agent.spec.elastic import FirstStep, Place
from payload.training.distributed import Ranks
from payload.training.progress import Progress
from payload.training.run_files import Metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reformed:
    """How the ranks have formed anew, as one of them knows it."""

    place: Place
    steps_lost: int
    """Steps that were begun before, and are made again: 0 or 1."""
    since: float
    """When this rank's last step before ended, by the monotonic clock."""
    is_new_root: bool
    """Whether this rank has become rank 0 by it."""
    tell: Callable[[FirstStep], None]
    """Tells the launcher."""

    def report(self, metrics: Metrics, progress: Progress, ranks: Ranks) -> None:
        """Report it with the first step since, or with the end of an epoch that lacked none (rank 0)."""
        place, seconds = self.place, time.monotonic() - self.since
        metrics.event(
            "reformed",
            epoch=progress.epoch + 1,
            step=progress.step,
            total_steps=progress.total_steps,
            ranks=ranks.size,
            hosts=", ".join(dict.fromkeys(ranks.hosts)),
            lost=", ".join(place.lost) or None,
            lost_ranks=", ".join(map(str, place.lost_ranks)) or None,
            joined=", ".join(place.joined) or None,
            why=place.why,
            steps_lost=self.steps_lost,
            seconds=seconds,
        )
        many, again = "" if ranks.size == 1 else "s", "" if self.steps_lost == 1 else "s"
        print(
            f"payload.train: goes on with {ranks.size} rank{many} after {seconds:.1f} s, for {place.why}; "
            f"{self.steps_lost} step{again} made again",
            flush=True,
        )
        self.tell(FirstStep(round=place.round, step=progress.total_steps, steps_lost=self.steps_lost, seconds=seconds))
