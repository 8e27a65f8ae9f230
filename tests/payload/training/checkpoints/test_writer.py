from __future__ import annotations

import dataclasses
import errno
import os
import re
import threading
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pytest

from agent.errors import ReportedError
from agent.staging.s3_streams import BucketError
from payload.training.checkpoints.claim import SupersededError
from payload.training.checkpoints.policy import Retention
from payload.training.checkpoints.storage import DirectoryStorage, Fill
from payload.training.checkpoints.store import CheckpointStore
from payload.training.checkpoints.writer import CheckpointWriter, Missed, NotFiniteError, Written
from payload.training.progress import Progress

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
