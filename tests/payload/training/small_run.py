"""A run that two ranks complete in seconds, for programs that several ranks run together."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from payload.data.dataset import Dataset
from payload.data.open_dataset import open_dataset
from payload.recipes.train_config import TrainConfig
from payload.settings import Settings
from payload.training import trainer
from payload.training.epoch import TrainingEnd
from payload.training.rank_setup import set_up_rank
from payload.training.reporting.result_file import Provenance

NOBODY = Provenance(payload_hash=None, git_commit=None)


def small_digits() -> Dataset:
    """Take the first digits, in numbers that neither the batch size nor the number of ranks divides."""
    data = open_dataset(Settings(dataset="digits"), None)
    return dataclasses.replace(data, train=data.train.pick(np.arange(71)), test=data.test.pick(np.arange(37)))


DATA = small_digits()


def configuration(run_dir: Path, *flags: str) -> TrainConfig:
    fixed = ["--recipe", "digits", "--global-batch", "33", "--epochs", "2", "--checkpoint-epochs", "1"]
    return TrainConfig.from_argv([*fixed, "--run-dir", str(run_dir), "--intra-op-threads", "1", *flags])


def train(config: TrainConfig, stop: Callable[[], bool] = lambda: False) -> TrainingEnd:
    return trainer.train_and_evaluate(
        config,
        DATA,
        provenance=NOBODY,
        host=None,
        started=time.time(),
        stop_requested=stop,
        rank_setup=set_up_rank(config.settings, os.environ),
    )
