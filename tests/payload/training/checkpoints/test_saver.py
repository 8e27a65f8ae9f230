"""Checkpoints saved as they are due, and written beside the training."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pytest

from agent.errors import ReportedError
from agent.files.atomic_write import StorageError
from agent.staging.s3_streams import BucketError
from payload.training.checkpoints.policy import Retention, SavePolicy, StepCosts
from payload.training.checkpoints.saver import CheckpointSaver, CheckpointWriter, Missed, NotFiniteError, Written
from payload.training.checkpoints.storage import DirectoryStorage, Fill
from payload.training.checkpoints.store import CheckpointStore, SupersededError, read_header
from payload.training.progress import Progress
from tests.waiting import eventually

Arrays = dict[str, npt.NDArray[Any]]


class Gated(DirectoryStorage):
    """A storage that writes when it is let to, and fails when it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.entered, self.gate = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def put(self, name: str, size: int, fill: Fill) -> None:
        self.entered.set()
        assert self.gate.wait(60)

        def failing(file: IO[bytes]) -> bytes:
            if self.error:
                raise self.error
            return fill(file)

        super().put(name, size, failing)


@pytest.fixture
def storage(tmp_path: Path) -> Gated:
    return Gated(tmp_path)


@pytest.fixture
def writer(storage: Gated) -> CheckpointWriter:
    return CheckpointWriter(CheckpointStore(storage, Retention(newest=9)))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def progress(step: int) -> Progress:
    return Progress(recipe="digits", seed=1, global_batch=1, total_steps=step)


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_training_goes_on_while_a_checkpoint_is_written(writer: CheckpointWriter, storage: Gated) -> None:
    variable = np.zeros(4)
    writer.save(progress(1), lambda: {"a": variable.copy()}, settings={"seed": 1}, accuracy=0.5)
    assert storage.entered.wait(60)
    assert (writer.results(), writer.writing) == ([], True)
    variable += 1  # the next step
    storage.gate.set()
    writer.finish()
    found, _ = writer.store.newest_valid()
    assert found is not None
    assert found.arrays["a"].tolist() == [0, 0, 0, 0]
    assert (found.header.settings, found.header.accuracy) == ({"seed": 1}, 0.5)
    assert not writer.writing
    (written,) = writer.results()
    assert isinstance(written, Written)
    assert (written.name, written.bytes) == ("step-00000001", found.header.bytes)
    assert written.cost_s == written.waited_s + written.copied_s
    assert dataclasses.replace(written, slowed_s=2.0).cost_s == written.cost_s + 2
    assert writer.results() == []


def test_a_second_one_waits_for_the_first_before_it_copies(writer: CheckpointWriter, storage: Gated) -> None:
    copied: list[str] = []

    def copy(name: str) -> Arrays:
        copied.append(name)
        return {name: np.zeros(1)}

    writer.save(progress(1), lambda: copy("first"))
    assert storage.entered.wait(60)
    second = threading.Thread(target=lambda: writer.save(progress(2), lambda: copy("second")))
    second.start()
    second.join(0.2)
    assert second.is_alive() and copied == ["first"]
    storage.gate.set()
    second.join(60)
    writer.finish()
    assert copied == ["first", "second"]
    first, last = writer.results()
    assert isinstance(first, Written) and isinstance(last, Written)
    assert (first.name, last.name) == ("step-00000001", "step-00000002")
    assert last.waited_s > first.waited_s


def test_who_waits_long_says_for_what(storage: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def hear(text: str, **_: object) -> None:
        said.append(text)
        storage.gate.set()

    monkeypatch.setattr("builtins.print", hear)
    writer = CheckpointWriter(CheckpointStore(storage, Retention(newest=3)), wait_message_s=0.01)
    writer.save(progress(1), dict)
    writer.finish()
    assert said[0] == "payload.train: waiting for a checkpoint to be written"


@pytest.mark.parametrize("error", [full(), BucketError("write", "s3://my-runs/one", "no answer")])
def test_a_place_that_takes_none_is_told_and_tried_again_with_the_next(
    writer: CheckpointWriter, storage: Gated, error: Exception
) -> None:
    storage.error = error
    storage.gate.set()
    writer.save(progress(1), dict)
    writer.finish()
    assert not writer.failed
    (missed,) = writer.results()
    assert isinstance(missed, Missed) and missed.name == "step-00000001"
    assert re.search(r"cannot write .*(step-00000001: No space left on device|no answer)", str(missed.error))
    storage.error = None
    writer.save(progress(3), dict)
    writer.finish()
    assert writer.store.names() == ["step-00000003"]


@pytest.mark.parametrize("asked_by", ["check", "finish"])
def test_a_failure_that_ends_the_run_is_kept_until_it_is_asked_for_and_told_once(
    writer: CheckpointWriter, storage: Gated, asked_by: str
) -> None:
    storage.error = SupersededError("/runs/one", "process 7 on 'worker2'")
    storage.gate.set()
    writer.save(progress(1), dict)
    writer.save(progress(2), lambda: pytest.fail("nothing is copied after a failure"))
    assert writer.failed is True
    with pytest.raises(SupersededError, match="process 7 on 'worker2' has begun to write checkpoints to /runs/one"):
        getattr(writer, asked_by)()
    writer.finish()
    storage.error = None
    writer.save(progress(3), dict)
    writer.finish()
    assert writer.store.names() == ["step-00000003"]


def test_no_failure_is_lost_whatever_its_kind(writer: CheckpointWriter, storage: Gated) -> None:
    storage.error = KeyError("x")
    storage.gate.set()
    writer.save(progress(7), dict)
    with pytest.raises(ReportedError, match=r"the checkpoint at step 7 failed: KeyError\('x'\)"):
        writer.finish()


def test_memory_that_is_not_there_is_told_as_a_disk_without_room_is(writer: CheckpointWriter) -> None:
    def copy() -> Arrays:
        raise MemoryError

    writer.save(progress(1), copy)
    (missed,) = writer.results()
    assert isinstance(missed, Missed)
    assert "no memory for a copy of the variables" in str(missed.error)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_not_kept(writer: CheckpointWriter, storage: Gated, number: float) -> None:
    storage.gate.set()
    good = {"model/a": np.zeros(3, np.float32), "model/seed/0": np.array([1, 2])}
    writer.save(progress(1), lambda: good)
    writer.save(progress(2), lambda: {**good, "optimizer/v": np.array([0, number], np.float32)})
    with pytest.raises(NotFiniteError, match="optimizer/v is not finite after 2 steps"):
        writer.finish()
    assert writer.store.names() == ["step-00000001"]


@pytest.mark.parametrize("error", [full(), SupersededError("/runs/one", "process 7")])
def test_closing_waits_and_says_a_failure_that_nobody_asked_for(
    writer: CheckpointWriter, storage: Gated, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    storage.error = error
    writer.save(progress(1), dict)
    threading.Timer(0.05, storage.gate.set).start()
    writer.close()
    assert re.search("warning: (cannot write|process 7 has begun)", capsys.readouterr().out)
    assert not writer.failed
    writer.close()


def test_many_checkpoints_take_no_more_memory_than_one(tmp_path: Path) -> None:
    size = 1 << 24
    writer = CheckpointWriter(CheckpointStore(DirectoryStorage(tmp_path), Retention(newest=1)))
    variable = np.ones(size, np.uint8)

    def save(step: int) -> int:
        writer.save(progress(step), lambda: {"a": variable.copy()})
        writer.finish()
        return resident_bytes()

    first = max(save(step) for step in range(3))
    last = max(save(step) for step in range(3, 30))
    assert last < first + size / 4


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
