"""Checkpoints that are saved when they are due and written in parallel to the training."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pytest

from agent.errors import ReportedError
from agent.files.atomic_write import StorageError
from agent.staging.s3_streams import BucketError
from payload.settings import Settings
from payload.training.checkpoints.checkpoint_files import CheckpointStore, SupersededError, read_header
from payload.training.checkpoints.checkpoint_storage import DirectoryStorage, Fill
from payload.training.checkpoints.save_policy import Retention, SavePolicy, StepCosts
from payload.training.checkpoints.saver import CheckpointReporter, CheckpointSaver, Missed, NotFiniteError, Written
from payload.training.progress import Progress
from payload.training.reporting.metrics_file import Metrics
from payload.training.reporting.step_timer import RunTotals
from tests.waiting import eventually

Arrays = dict[str, npt.NDArray[Any]]
START = Progress(recipe="digits", seed=1, global_batch=4)


class Gated(DirectoryStorage):
    """A storage that writes only when the gate is open, and fails on request."""

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


class Reports(CheckpointReporter):
    """Record the reports."""

    def __init__(self) -> None:
        self.saved: list[Written] = []
        self.intervals_s: list[float] = []
        self.left_out: list[Missed] = []

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.saved]

    def written(self, checkpoint: Written, *, interval_s: float) -> None:
        self.saved.append(checkpoint)
        self.intervals_s.append(interval_s)

    def missed(self, checkpoint: Missed) -> None:
        self.left_out.append(checkpoint)


@pytest.fixture
def storage(tmp_path: Path) -> Gated:
    return Gated(tmp_path / "checkpoints")


@pytest.fixture
def store(storage: Gated) -> CheckpointStore:
    return CheckpointStore(storage, Retention(newest=9))


@pytest.fixture
def reports() -> Reports:
    return Reports()


Make = Callable[..., CheckpointSaver]


@pytest.fixture
def make(store: CheckpointStore, reports: Reports) -> Iterator[Make]:
    """Return a function that creates a saver, with a checkpoint per epoch unless a policy is given."""
    with contextlib.ExitStack() as stack:

        def made(
            policy: SavePolicy | None = None,
            copy: Callable[[], Arrays] = lambda: {"w": np.ones(3, np.float32)},
            **more: Any,
        ) -> CheckpointSaver:
            saver = CheckpointSaver(
                store,
                policy or SavePolicy(epochs=1, last_epoch=9),
                copy=copy,
                settings={"seed": 1},
                reporter=reports,
                **more,
            )
            return stack.enter_context(contextlib.closing(saver))

        yield made


def at(steps: int, epoch: int = 0) -> Progress:
    return dataclasses.replace(START, total_steps=steps, epoch=epoch)


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_training_continues_while_checkpoint_is_written(
    make: Make, store: CheckpointStore, storage: Gated, reports: Reports
) -> None:
    variable = np.zeros(4)
    saver = make(copy=lambda: {"a": variable.copy()})
    saver.save(at(1), 0.5)
    assert storage.entered.wait(60)
    assert (reports.saved, saver.writing) == ([], True)
    variable += 1  # the next step
    storage.gate.set()
    saver.finish()
    found, _ = store.newest_valid()
    assert found is not None
    assert found.arrays["a"].tolist() == [0, 0, 0, 0]
    assert (found.header.settings, found.header.accuracy) == ({"seed": 1}, 0.5)
    assert not saver.writing
    (written,) = reports.saved
    assert (written.name, written.bytes) == ("step-00000001", found.header.bytes)
    assert dataclasses.replace(written, slowed_s=2.0).cost_s == written.waited_s + written.copied_s + 2


def test_second_checkpoint_waits_for_the_first_before_copying(make: Make, storage: Gated, reports: Reports) -> None:
    copied: list[int] = []

    def copy() -> Arrays:
        copied.append(len(copied))
        return {}

    saver = make(copy=copy)
    saver.save(at(1))
    assert storage.entered.wait(60)
    second = threading.Thread(target=lambda: saver.save(at(2)))
    second.start()
    second.join(0.2)
    assert second.is_alive() and copied == [0]
    storage.gate.set()
    second.join(60)
    saver.finish()
    assert copied == [0, 1]
    first, last = reports.saved
    assert (first.name, last.name) == ("step-00000001", "step-00000002")
    assert last.waited_s > first.waited_s


def test_long_wait_is_reported(make: Make, storage: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []

    def hear(text: str, **_: object) -> None:
        printed.append(text)
        storage.gate.set()

    monkeypatch.setattr("builtins.print", hear)
    saver = make(wait_message_s=0.01)
    saver.save(at(1))
    saver.finish()
    assert printed[0] == "payload.train: waiting until the previous checkpoint is written"


@pytest.mark.parametrize("error", [full(), BucketError("write", "s3://my-runs/one", "no answer")])
def test_missed_checkpoint_is_reported_and_only_the_last_is_required(
    make: Make, store: CheckpointStore, storage: Gated, reports: Reports, error: Exception
) -> None:
    said = r"cannot write .*(step-0000000\d: No space left on device|no answer)"
    storage.error = error
    storage.gate.set()
    saver = make()
    saver.save_after_epoch(at(1, 1), 0.1)
    saver.save_after_epoch(at(2, 2), 0.2)
    assert reports.left_out[0].name == "step-00000001"  # the second may still be in flight
    assert re.search(said, str(reports.left_out[0].error))
    assert not saver.failed
    with pytest.raises((StorageError, BucketError), match=said):
        saver.save_stopped(at(3, 2))
    assert len(reports.left_out) == 3
    storage.error = None
    saver.save_after_epoch(at(4, 4), 0.4)
    saver.finish()
    assert (store.names(), reports.names) == (["step-00000004"], ["step-00000004"])


@pytest.mark.parametrize("finish", [True, False])
def test_failure_that_ends_the_run_is_kept_until_it_is_raised_once(
    make: Make, store: CheckpointStore, storage: Gated, finish: bool
) -> None:
    storage.error = SupersededError("/runs/one", "process 7 on 'worker2'")
    storage.gate.set()
    copies: list[Arrays] = [{}]
    saver = make(SavePolicy(epochs=10, last_epoch=10), copy=copies.pop)
    saver.save(at(1))
    saver.save(at(2))  # there is no second copy to pop
    assert saver.failed
    with pytest.raises(SupersededError, match="process 7 on 'worker2' has started to write checkpoints to /runs/one"):
        saver.finish() if finish else saver.save_after_epoch(at(2, 1), 0.5)
    storage.error = None
    copies.append({})
    assert saver.save_stopped(at(3)) == "step-00000003"
    assert store.names() == ["step-00000003"]


def test_no_failure_is_lost_whatever_its_kind(make: Make, storage: Gated) -> None:
    storage.error = KeyError("x")
    storage.gate.set()
    saver = make()
    saver.save(at(7))
    with pytest.raises(ReportedError, match="the checkpoint at step 7 could not be written: KeyError: 'x'"):
        saver.finish()


def test_lack_of_memory_is_reported_like_a_full_disk(make: Make, reports: Reports) -> None:
    def copy() -> Arrays:
        raise MemoryError

    make(copy=copy).save(at(1))
    assert "not enough memory for the copy of the variables" in str(reports.left_out[0].error)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_non_finite_weights_are_not_saved(make: Make, store: CheckpointStore, storage: Gated, number: float) -> None:
    storage.gate.set()
    good = {"model/a": np.zeros(3, np.float32), "model/seed/0": np.array([1, 2])}
    copies = [{**good, "optimizer/v": np.array([0, number], np.float32)}, good]
    saver = make(copy=copies.pop)
    saver.save(at(1))
    saver.save(at(2))
    with pytest.raises(NotFiniteError, match="optimizer/v is not finite after 2 steps"):
        saver.finish()
    assert store.names() == ["step-00000001"]


@pytest.mark.parametrize("error", [full(), SupersededError("/runs/one", "process 7")])
def test_closing_waits_and_prints_a_failure_that_was_not_raised(
    make: Make, storage: Gated, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    storage.error = error
    saver = make()
    saver.save(at(1))
    threading.Timer(0.05, storage.gate.set).start()
    saver.close()
    assert re.search("warning: (cannot write|process 7 has started)", capsys.readouterr().out)
    assert not saver.failed
    saver.close()
    assert capsys.readouterr().out == ""


def test_many_checkpoints_use_no_more_memory_than_one(make: Make, storage: Gated) -> None:
    size = 1 << 24
    variable = np.ones(size, np.uint8)
    saver = make(copy=lambda: {"a": variable.copy()})
    storage.gate.set()

    def save(step: int) -> int:
        saver.save(at(step))
        saver.finish()
        return resident_bytes()

    first = max(save(step) for step in range(3))
    last = max(save(step) for step in range(3, 15))
    assert last < first + size / 4


def test_due_epochs_are_saved_with_accuracy_and_reported_once(
    make: Make, store: CheckpointStore, storage: Gated, reports: Reports
) -> None:
    storage.gate.set()
    saver = make(SavePolicy(epochs=2, last_epoch=5))
    for epoch in range(1, 6):
        saver.save_after_epoch(at(10 * epoch, epoch), accuracy=epoch / 10)
    saver.finish()
    assert reports.names == ["step-00000020", "step-00000040", "step-00000050"]
    assert read_header(store.storage, "step-00000040").accuracy == 0.4


def test_within_an_epoch_the_clock_decides_and_restarts_with_each_checkpoint(
    make: Make, store: CheckpointStore, storage: Gated
) -> None:
    storage.gate.set()
    now = 0.0
    saver = make(SavePolicy(epochs=100, last_epoch=100, minutes=1, clock=lambda: now))
    for steps, seconds in enumerate((30.0, 60.0, 90.0, 119.0, 120.0, 200.0)):
        now = seconds
        saver.after_step(at(steps), is_last=steps == 5)
    saver.finish()
    assert store.names() == ["step-00000004", "step-00000001"], "not after the last step of an epoch"
    for epoch, seconds in enumerate((179.0, 181.0, 200.0), 1):
        now = seconds
        saver.save_after_epoch(at(5 + epoch, epoch), 0.5)
    saver.finish()
    assert store.names()[0] == "step-00000007", "after an epoch that is not due the clock decides too"
    assert read_header(store.storage, "step-00000007").accuracy == 0.5


def test_slow_steps_during_write_delay_the_next_checkpoint(
    make: Make, store: CheckpointStore, storage: Gated, reports: Reports
) -> None:
    now = 0.0
    policy = SavePolicy(epochs=1, last_epoch=9, minutes=1, cost_limit=0.02, clock=lambda: now)
    saver, steps = make(policy, costs=StepCosts(lambda: now)), iter(range(1, 1000))

    def step(seconds: float, times: int) -> None:
        nonlocal now
        for _ in range(times):
            now += seconds
            saver.after_step(at(next(steps)), is_last=False)

    saver.begin_epoch()
    step(1.0, 60)
    step(1.5, 6)
    assert reports.names == []
    storage.gate.set()
    eventually(lambda: store.names() == ["step-00000060"])
    eventually(lambda: not saver.writing)
    step(1.5, 1)
    assert reports.names == ["step-00000060"]
    assert reports.saved[0].slowed_s == pytest.approx(3.5)
    assert reports.intervals_s == [pytest.approx(3.5 / 0.02, rel=0.01)]
    step(1.0, 100)
    saver.finish()
    assert store.names() == ["step-00000060"]
    step(1.0, 80)
    saver.finish()
    assert len(store.names()) == 2


WRITTEN = Written(name="step-00000007", bytes=9, waited_s=1.0, copied_s=2.0, written_s=30.0, slowed_s=4.0)
MISSED = Missed(name="step-00000009", error=ReportedError("cannot write /mnt/efs: No space left on device"))


def test_costs_add_up_and_only_much_rarer_checkpoints_are_reported_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    totals = RunTotals()
    with contextlib.closing(Metrics(tmp_path, started=0.0)) as metrics:
        reporter = CheckpointReporter(metrics, totals, Settings(checkpoint_minutes=5))
        for interval_s in (270.0, 350.0, 450.0, 460.0, 600.0):
            reporter.written(WRITTEN, interval_s=interval_s)
    assert totals.checkpoint_seconds == 5 * 7.0
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "payload.train: a checkpoint costs 7.0 s of training, so it is written every 7.5 min within epochs, not "
        "every 5 min, to use at most 2% of the time (--checkpoint-cost-percent)"
    )
    assert "every 10.0 min within epochs" in second
    event = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert {name: event[name] for name in ("checkpoint", "slowed_s", "interval_s")} == {
        "checkpoint": "step-00000007",
        "slowed_s": 4.0,
        "interval_s": 270.0,
    }


def test_interval_is_not_reported_without_timed_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(Metrics(tmp_path, started=0.0)) as metrics:
        CheckpointReporter(metrics, RunTotals(), Settings(checkpoint_minutes=0)).written(WRITTEN, interval_s=0.0)
    assert capsys.readouterr().out == ""


def test_missed_checkpoint_does_not_suggest_resume_during_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = BucketError("write", "s3://my-runs/one", "no answer")
    CheckpointReporter(None, RunTotals(), Settings()).missed(Missed(name="step-00000009", error=error))
    assert "--resume" in str(error)
    told = capsys.readouterr().out
    assert "check that the bucket exists" in told and "--resume" not in told


def test_missed_checkpoint_is_in_the_metrics_the_log_and_the_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    totals = RunTotals()
    with contextlib.closing(Metrics(tmp_path, started=0.0)) as metrics:
        CheckpointReporter(metrics, totals, Settings()).missed(MISSED)
    assert totals.checkpoints_missed == ["step-00000009: cannot write /mnt/efs: No space left on device"]
    assert capsys.readouterr().out.startswith(
        "payload.train: warning: checkpoint step-00000009 was not written: cannot write /mnt/efs: No "
        "space left on device"
        ". Training "
    )
    event = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (event["event"], event["checkpoint"], event["reason"]) == (
        "checkpoint_missed",
        "step-00000009",
        "cannot write /mnt/efs: No space left on device",
    )
