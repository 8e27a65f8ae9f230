"""Train in rounds: where a rank is lost, those that are left form anew and go on with what they have in memory.

A step changes variables only once all its sums are there (`make_train_step`), so each rank has made a whole number of
steps at any time. Of ranks that leave a step because another one is gone, some may have had its sums and others not:
they differ by one step at most. So all take over what one with the most steps has, and every image counts once.

The global batch, the learning rates and the schedule stay as they began: a batch is dealt out anew among the ranks that
there are, each of which has a larger or smaller share of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from agent.errors import ReportedError
from agent.files.listing import is_listed
from agent.launch.elastic.connections import Connections
from agent.launch.elastic.launcher_client import LauncherClient, ReformWatch
from agent.spec.elastic import LEAVING_VARIABLE, Place
from payload.data.types import Dataset
from payload.recipes.config import TrainConfig
from payload.settings import Settings
from payload.training import distributed
from payload.training.checkpoints.location import store_for
from payload.training.checkpoints.resume import StartPoint
from payload.training.checkpoints.store import CheckpointStore
from payload.training.checkpoints.writer import CheckpointWriter
from payload.training.context import TrainingEnd
from payload.training.distributed import RankLostError, Ranks
from payload.training.epoch import ReformError, require_equal_weights
from payload.training.plan import TrainingPlan
from payload.training.progress import Progress
from payload.training.rank_setup import RankSetup
from payload.training.reporting.reformed import Reformed
from payload.training.run_files import Provenance
from payload.training.schedule import Schedule, schedule_for
from payload.training.state import TrainState, new_state
from payload.training.tensorflow_setup import set_up_tensorflow
from payload.training.trainer import Kept, begin, plan_run, train_as_planned

LEAVE_S: Final = 15.0
"""How long a rank that is asked to stop, since its node is about to end, waits until the launcher has it leave: the
supervisor looks every 5 s, and what is left of the minute is for a step, a checkpoint and the end."""


class RejoinError(ReportedError, ConnectionError):
    """Report that this rank could not join the others."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"the ranks could not form anew: {reason}. Go on from the last checkpoint with --resume")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """How far a rank has come."""

    epoch: int
    total_steps: int
    in_step: bool
    """Whether it has left a step before its end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shared:
    """What all ranks take over from one, besides its variables."""

    settings: Settings
    schedule: Schedule
    started: float
    start_point: StartPoint
    progress: Progress
    seeds_of: int
    """The rank whose seeds of dropout its variables have."""
    in_step: bool


def furthest(standings: tuple[Standing | None, ...]) -> int | None:
    """Return the rank that has come furthest, of several the first; None where nobody has begun."""
    begun = [rank for rank, standing in enumerate(standings) if standing is not None]
    return max(begun, key=lambda rank: _place_in_run(standings[rank]), default=None)


def _place_in_run(standing: Standing | None) -> tuple[int, int]:
    return (standing.total_steps, standing.epoch) if standing else (-1, -1)


class StopUnlessLeaving:
    """Whether a stop is requested, where a request may mean that this rank's node is about to end.

    Then the others go on without it: the launcher has its ranks leave between two steps. Where it does not, as with too
    few other nodes, the request is one to stop.
    """

    def __init__(
        self, is_requested: Callable[[], bool], notice: Path | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`notice`: the file that is there once the node is about to end."""
        self._is_requested, self._notice, self._clock = is_requested, notice, clock
        self._leaves_since: float | None = None
        self._is_stop = False

    def __call__(self) -> bool:
        """Return whether to stop."""
        if self._is_stop or not self._is_requested():
            return self._is_stop
        if self._leaves_since is None and self._notice is not None and is_listed(self._notice):
            self._leaves_since = self._clock()
        self._is_stop = self._leaves_since is None or self._clock() - self._leaves_since >= LEAVE_S
        return self._is_stop


@dataclasses.dataclass(kw_only=True)
class ElasticTraining:
    """One rank of an elastic run, over all rounds."""

    config: TrainConfig
    data: Dataset
    provenance: Provenance
    host: str | None
    started: float
    stop_requested: Callable[[], bool]
    watch_stop_file: Callable[[bool], None]
    """Called with whether this rank is to look for the file that stops the run."""
    rank_setup: RankSetup
    launcher: LauncherClient
    connections: Connections = dataclasses.field(default_factory=Connections)
    kept: Kept | None = None
    shared: Shared | None = None
    """Its settings, schedule and start, which never change; its position is that of the last forming."""
    is_whole: bool = False
    """Whether the variables are those of a whole step: not while they are taken over from another rank."""
    was_root: bool = False
    seeds_of: int = 0

    def train(self) -> TrainingEnd:
        """Train as `payload.training.trainer.train_and_evaluate` does, over as many rounds as it takes.

        Raises ReportedError, on all ranks; DismissedError where the others go on without this one.
        """
        set_up_tensorflow(self.rank_setup, int(os.environ.get("HOROVOD_LOCAL_RANK", "0")))
        digest = self.data.digest()
        notice = os.environ.get(LEAVING_VARIABLE)
        self.stop_requested = StopUnlessLeaving(self.stop_requested, Path(notice) if notice else None)
        # The others wait while a rank joins: so it does before that whatever it can.
        ranks = int(os.environ.get("HOROVOD_SIZE", "1"))
        schedule = schedule_for(self.config.settings, examples=self.data.train.examples, ranks=ranks)
        state = new_state(self.config.settings, self.data, schedule)
        store = store_for(self.config.settings, self.config.run_dir)
        with contextlib.closing(CheckpointWriter(store)) as writer:
            while True:
                place = self.launcher.wait_for_place(digest)
                os.environ.update(place.variables())
                try:
                    with distributed.raising_lost_ranks():
                        return self._round(place, state, store, writer)
                except RankLostError:
                    self.connections.end()  # The launcher's next answer tells who is lost.
                except ReformError:
                    pass
                finally:
                    distributed.leave()

    def _round(self, place: Place, state: TrainState, store: CheckpointStore, writer: CheckpointWriter) -> TrainingEnd:
        """Join the others, agree on where the run is, and train."""
        try:
            with self.connections.opening():
                ranks = distributed.join()
        except (RuntimeError, ValueError) as error:
            raise RejoinError(error) from None
        self.launcher.report_joined()
        ranks = distributed.with_hosts(ranks, self.host)
        self.watch_stop_file(ranks.is_root)
        standings = distributed.gather_values(self._standing(), name="standings")
        source = furthest(standings)
        if source is None and self.kept is not None:
            raise RejoinError("the rank that had come furthest was lost while the others took over what it had")
        if source is None:
            plan, reformed = self._begin(ranks, state, store, writer), None
        else:
            plan, shared = self._take_over(ranks, source, standings, state, store, writer)
            reformed = Reformed(
                place=place,
                steps_lost=int(shared.in_step),
                since=self._kept.position.stepped,
                is_new_root=ranks.is_root and not self.was_root,
                tell=self.launcher.report_step,
            )
        self.was_root, self.seeds_of = ranks.is_root, ranks.rank
        self._kept.position.in_step = False
        watch = ReformWatch(self.launcher)
        with watch.watching() if ranks.is_root else contextlib.nullcontext():
            return train_as_planned(plan, self._kept, self.stop_requested, reform_wanted=watch, reformed=reformed)

    @property
    def _kept(self) -> Kept:
        if self.kept is None:
            raise RuntimeError("nothing is kept before the first round")
        return self.kept

    def _standing(self) -> Standing | None:
        if self.kept is None or not self.is_whole:
            return None
        position = self.kept.position
        return Standing(
            epoch=position.progress.epoch, total_steps=position.progress.total_steps, in_step=position.in_step
        )

    def _begin(self, ranks: Ranks, state: TrainState, store: CheckpointStore, writer: CheckpointWriter) -> TrainingPlan:
        """Begin the run, or resume it from a checkpoint, with ranks of which none has begun."""
        plan = plan_run(
            self.config,
            self.data,
            ranks,
            store,
            provenance=self.provenance,
            started=self.started,
            rank_setup=self.rank_setup,
        )
        start_point = begin(plan, state, store)
        self.kept = Kept.at_start(state, start_point, writer, plan.schedule, plan.settings)
        self.is_whole = True
        self.shared = Shared(
            settings=plan.settings,
            schedule=plan.schedule,
            started=plan.started,
            start_point=start_point,
            progress=start_point.progress,
            seeds_of=ranks.rank,
            in_step=False,
        )
        return plan

    def _take_over(
        self,
        ranks: Ranks,
        source: int,
        standings: tuple[Standing | None, ...],
        state: TrainState,
        store: CheckpointStore,
        writer: CheckpointWriter,
    ) -> tuple[TrainingPlan, Shared]:
        """Take over what the rank has that has come furthest; return the plan of the round, and what was taken over."""
        own = None
        if self.kept is not None and self.shared is not None:
            position = self.kept.position
            own = dataclasses.replace(
                self.shared, progress=position.progress, seeds_of=self.seeds_of, in_step=position.in_step
            )
        shared: Any = distributed.broadcast_value(own, name="shared", source=source)
        distributed.require_agreement(
            ranks, self.data.digest(), what="data", when="at the start", advice="Give every rank the same files"
        )
        if self.kept is None:
            self.kept = Kept.at_start(state, shared.start_point, writer, shared.schedule, shared.settings)
        self.shared = shared
        # One that has come as far has the same variables, and loses nothing where the source is lost meanwhile.
        self.is_whole = self.is_whole and _place_in_run(standings[ranks.rank]) == _place_in_run(standings[source])
        distributed.broadcast_variables(list(state.variables.values()), source=source)
        self.is_whole, self.seeds_of, self.kept.position.progress = True, shared.seeds_of, shared.progress
        require_equal_weights(ranks, state, "after the ranks formed anew")
        state.separate_dropout_seeds(ranks.rank, of=shared.seeds_of)
        distributed.attempt(ranks, lambda: self._claim(store) if ranks.is_root and not self.was_root else None)
        plan = TrainingPlan(
            config=dataclasses.replace(self.config, settings=shared.settings),
            data=self.data,
            schedule=shared.schedule,
            ranks=ranks,
            rank_setup=self.rank_setup,
            placements=distributed.gather_values(str(self.rank_setup.placed.placement), name="placements"),
            provenance=self.provenance,
            started=shared.started,
        )
        return plan, shared

    def _claim(self, store: CheckpointStore) -> None:
        """Take over the checkpoints from the rank that wrote them before."""
        store.claim.take()
        store.storage.tidy()
        if store.retention.best:
            self._kept.policy.best = store.best_accuracy()
