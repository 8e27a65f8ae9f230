"""What the steps of a run work with, and how a run ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from payload.training.checkpoints.saver import CheckpointSaver
from payload.training.evaluation import Evaluator
from payload.training.plan import TrainingPlan
from payload.training.progress import Progress
from payload.training.reporting.reporter import Reporter
from payload.training.state import TrainState


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingEnd:
    """How a run ended: with a result, or stopped with a checkpoint from which it can go on."""

    progress: Progress
    stopped: bool
