from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.files.atomic_write import StorageError
from payload.training.checkpoints.claim import SupersededError
from payload.training.checkpoints.policy import Retention, SavePolicy
from payload.training.checkpoints.saver import CheckpointSaver
from payload.training.checkpoints.step_costs import StepCosts
from payload.training.checkpoints.storage import DirectoryStorage, Fill
from payload.training.checkpoints.store import CheckpointStore, read_header
from payload.training.checkpoints.writer import CheckpointWriter, Missed, Written
from payload.training.progress import Progress
from tests.waiting import eventually

START = Progress(recipe="digits", seed=1, global_batch=4)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(DirectoryStorage(tmp_path / "checkpoints"), Retention(newest=9))


class Reports:
    """Keep what is reported."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.costs_s: list[float] = []
        self.intervals_s: list[float] = []
        self.said: list[str] = []

    def written(self, checkpoint: Written, *, interval_s: float) -> None:
        self.names.append(checkpoint.name)
        self.costs_s.append(checkpoint.slowed_s)
        self.intervals_s.append(interval_s)

    def missed(self, checkpoint: Missed) -> None:
        self.said.append(f"{checkpoint.name}: {checkpoint.error}")


@contextlib.contextmanager
def saver(
    store: CheckpointStore, policy: SavePolicy, reports: Reports, costs: StepCosts | None = None
) -> Iterator[CheckpointSaver]:
    with contextlib.closing(CheckpointWriter(store)) as writer:
        yield CheckpointSaver(
            writer,
            policy,
            copy=lambda: {"w": np.ones(3, np.float32)},
            settings={"seed": 1},
            reports=reports,
            costs=costs,
        )


def at(steps: int, epoch: int = 0) -> Progress:
    return dataclasses.replace(START, total_steps=steps, epoch=epoch)


def test_epochs_that_are_due_are_saved_with_accuracy_and_settings_and_each_is_reported_once(
    store: CheckpointStore,
) -> None:
    reports = Reports()
    with saver(store, SavePolicy(epochs=2, last_epoch=5), reports) as saves:
        for epoch in range(1, 6):
            saves.save_after_epoch(at(10 * epoch, epoch), accuracy=epoch / 10)
        saves.finish()
    assert reports.names == ["step-00000020", "step-00000040", "step-00000050"]
    header = read_header(store.storage, "step-00000040")
    assert (header.accuracy, header.settings) == (0.4, {"seed": 1})


def test_within_an_epoch_the_clock_decides_and_starts_again_with_each_checkpoint(store: CheckpointStore) -> None:
    now = 0.0
    policy = SavePolicy(epochs=1, last_epoch=1, minutes=1, clock=lambda: now)
    with saver(store, policy, Reports()) as saves:
        for steps, seconds in enumerate((30.0, 60.0, 90.0, 119.0, 120.0, 200.0)):
            now = seconds
            saves.after_step(at(steps), is_last=steps == 5)
        saves.finish()
        assert store.names() == ["step-00000004", "step-00000001"], "none after the last step, whose epoch has its own"
        saves.save_after_epoch(at(6, epoch=1), 0.5)
        saves.finish()
    assert store.names()[0] == "step-00000006"


def test_after_an_epoch_that_is_not_due_the_clock_decides(store: CheckpointStore) -> None:
    now = 0.0
    policy = SavePolicy(epochs=100, last_epoch=100, minutes=1, clock=lambda: now)
    with saver(store, policy, Reports()) as saves:
        for epoch, seconds in enumerate((59.0, 61.0, 100.0), 1):
            now = seconds
            saves.save_after_epoch(at(10 * epoch, epoch), 0.5)
        saves.finish()
    assert store.names() == ["step-00000020"]
    assert read_header(store.storage, "step-00000020").accuracy == 0.5


def test_what_steps_beside_a_write_cost_makes_the_next_one_later(store: CheckpointStore) -> None:
    now, gate = 0.0, threading.Event()
    put = store.storage.put

    def slow(name: str, size: int, fill: Fill) -> None:
        assert gate.wait(60)
        put(name, size, fill)

    store.storage.put = slow  # type: ignore[method-assign]
    policy, reports = SavePolicy(epochs=1, last_epoch=9, minutes=1, cost_limit=0.02, clock=lambda: now), Reports()
    with saver(store, policy, reports, StepCosts(lambda: now)) as saves:
        steps = iter(range(1, 1000))

        def step(seconds: float, times: int) -> None:
            nonlocal now
            for _ in range(times):
                now += seconds
                saves.after_step(at(next(steps)), is_last=False)

        saves.begin_epoch()
        step(1.0, 60)
        step(1.5, 6)
        assert reports.names == []
        gate.set()
        eventually(lambda: store.names() == ["step-00000060"])
        eventually(lambda: not saves._writer.writing)
        step(1.5, 1)
        assert reports.names == ["step-00000060"]
        assert reports.costs_s == [pytest.approx(3.5)]
        assert reports.intervals_s == [pytest.approx(3.5 / 0.02, rel=0.01)]
        step(1.0, 100)
        saves.finish()
        assert store.names() == ["step-00000060"]
        step(1.0, 80)
        saves.finish()
    assert len(store.names()) == 2


def test_a_stopped_run_has_its_checkpoint_before_its_name_is_returned(store: CheckpointStore) -> None:
    reports = Reports()
    with saver(store, SavePolicy(epochs=1, last_epoch=1), reports) as saves:
        assert saves.save_stopped(at(7)) == "step-00000007"
        assert store.names() == ["step-00000007"]
    assert reports.names == ["step-00000007"]


def test_a_place_without_room_is_told_the_next_is_tried_and_only_the_last_must_be_written(
    store: CheckpointStore,
) -> None:
    reports, full = Reports(), True
    put = store.storage.put

    def disk(name: str, size: int, fill: Fill) -> None:
        if full:
            raise StorageError(Path(name), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        put(name, size, fill)

    store.storage.put = disk  # type: ignore[method-assign]
    with saver(store, SavePolicy(epochs=1, last_epoch=4), reports) as saves:
        saves.save_after_epoch(at(1, 1), 0.1)
        saves.save_after_epoch(at(2, 2), 0.2)
        assert reports.said[0].startswith("step-00000001: ")  # the second may still be on its way
        assert "No space left on device" in reports.said[0]
        with pytest.raises(StorageError, match="step-00000003: No space left"):
            saves.save_stopped(at(3, 2))
        assert len(reports.said) == 3
        full = False
        saves.save_after_epoch(at(4, 4), 0.4)
        saves.finish()
    assert (store.names(), reports.names) == (["step-00000004"], ["step-00000004"])


def test_a_failure_that_ends_the_run_shows_at_once_and_is_raised_at_the_next_check(store: CheckpointStore) -> None:
    store.claim.take()
    CheckpointStore(store.storage, store.retention).claim.take()
    with saver(store, SavePolicy(epochs=1, last_epoch=1), Reports()) as saves:
        saves.save(at(1))
        with pytest.raises(SupersededError, match="has begun to write checkpoints"):
            saves.save_stopped(at(2))
        assert not saves.failed, "it has been raised"
