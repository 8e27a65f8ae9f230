"""What the steps of a run work with, and how a run ends."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from payload.training.checkpoints.saver import CheckpointSaver
from payload.training.evaluation import Evaluator
from payload.training.plan import TrainingPlan
from payload.training.progress import Progress
from payload.training.reporting.reporter import Reporter
from payload.training.state import TrainState


@dataclasses.dataclass(kw_only=True)
class Position:
    """Where a rank is, also for code that catches the error that has ended its steps."""

    progress: Progress
    in_step: bool = False
    """Whether a step has begun whose end is not in `progress`."""
    stepped: float = dataclasses.field(default_factory=time.monotonic)
    """When the last step ended, by the monotonic clock; before the first, when this was made."""

    def begin_step(self) -> None:
        """Take note that a step begins."""
        self.in_step = True

    def end_step(self, progress: Progress) -> None:
        """Take note of the end of a step."""
        self.progress, self.in_step, self.stepped = progress, False, time.monotonic()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """The plan of a run, and what carries it out on this rank."""

    plan: TrainingPlan
    state: TrainState
    train_step: Callable[..., Any]
    evaluator: Evaluator
    reporter: Reporter
    saver: CheckpointSaver
    """Only rank 0 has anything to save."""
    stop_requested: Callable[[], bool]
    position: Position
    reform_wanted: Callable[[], bool] | None = None
    """Returns, in an elastic run, whether this rank knows that all are to form anew between two steps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingEnd:
    """How a run ended: with a result, or stopped with a checkpoint from which it can go on."""

    progress: Progress
    stopped: bool
