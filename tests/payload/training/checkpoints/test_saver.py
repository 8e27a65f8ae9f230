from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.files.atomic_write import StorageError
from payload.training.checkpoints.policy import Retention, SavePolicy
from payload.training.checkpoints.saver import CheckpointSaver
from payload.training.checkpoints.storage import DirectoryStorage
from payload.training.checkpoints.store import CheckpointStore, read_header
from payload.training.checkpoints.writer import CheckpointWriter, Written
from payload.training.progress import Progress

START = Progress(recipe="digits", seed=1, global_batch=4)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(DirectoryStorage(tmp_path / "checkpoints"), Retention(newest=9))


@contextlib.contextmanager
def saver(store: CheckpointStore, policy: SavePolicy, reported: list[Written]) -> Iterator[CheckpointSaver]:
    with contextlib.closing(CheckpointWriter(store)) as writer:
        yield CheckpointSaver(
            writer,
            policy,
            copy=lambda: {"w": np.ones(3, np.float32)},
            settings={"seed": 1},
            report=reported.extend,
        )


def at(steps: int, epoch: int = 0) -> Progress:
    return dataclasses.replace(START, total_steps=steps, epoch=epoch)


def test_epochs_that_are_due_are_saved_with_accuracy_and_settings_and_each_is_reported_once(
    store: CheckpointStore,
) -> None:
    reported: list[Written] = []
    with saver(store, SavePolicy(epochs=2, last_epoch=5), reported) as saves:
        for epoch in range(1, 6):
            saves.save_after_epoch(at(10 * epoch, epoch), accuracy=epoch / 10)
        saves.finish()
    assert [written.name for written in reported] == ["step-00000020", "step-00000040", "step-00000050"]
    header = read_header(store.storage, "step-00000040")
    assert (header.accuracy, header.settings) == (0.4, {"seed": 1})


def test_within_an_epoch_the_clock_decides_and_starts_again_with_each_checkpoint(store: CheckpointStore) -> None:
    now = 0.0
    policy = SavePolicy(epochs=1, last_epoch=1, minutes=1, clock=lambda: now)
    with saver(store, policy, []) as saves:
        for steps, seconds in enumerate((30.0, 60.0, 90.0, 119.0, 120.0)):
            now = seconds
            saves.save_within_epoch(at(steps))
        saves.finish()
    assert store.names() == ["step-00000004", "step-00000001"]


def test_a_stopped_run_has_its_checkpoint_before_its_name_is_returned(store: CheckpointStore) -> None:
    reported: list[Written] = []
    with saver(store, SavePolicy(epochs=1, last_epoch=1), reported) as saves:
        assert saves.save_stopped(at(7)) == "step-00000007"
        assert store.names() == ["step-00000007"]
    assert [written.name for written in reported] == ["step-00000007"]


def test_a_failure_shows_at_once_and_is_raised_at_the_next_check(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the directory should be")
    store = CheckpointStore(DirectoryStorage(tmp_path / "checkpoints"), Retention(newest=3))
    with saver(store, SavePolicy(epochs=1, last_epoch=1), []) as saves:
        saves.save(at(1))
        with pytest.raises(StorageError, match="checkpoints"):
            saves.save_stopped(at(2))
        assert not saves.failed, "it has been raised"
