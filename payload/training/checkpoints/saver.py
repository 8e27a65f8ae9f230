"""Checkpoints saved as they are due, and written in a thread while training goes on."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np

from agent.errors import ReportedError
from agent.files.atomic_write import StorageError
from agent.staging.s3_streams import BucketError
from payload.training.checkpoints.policy import SavePolicy, StepCosts
from payload.training.checkpoints.store import CheckpointStore, KeptSettings, name_of
from payload.training.progress import Progress
from payload.training.safetensors_io import CHUNK, Arrays

WAIT_MESSAGE_S: Final = 60.0
"""Time between two lines about the wait."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """A written checkpoint, and the time it took."""

    name: str
    bytes: int
    waited_s: float
    """Time that training waited for the one before."""
    copied_s: float
    """Time that training waited while the variables were copied."""
    written_s: float
    """Time until it was written, during the training."""
    slowed_s: float = 0.0
    """How much longer the steps meanwhile were, in all."""

    @property
    def cost_s(self) -> float:
        """Return the training time that it took."""
        return self.waited_s + self.copied_s + self.slowed_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class Missed:
    """A checkpoint for which there was no room, or whose place was gone."""

    name: str
    error: ReportedError


class NotFiniteError(ReportedError, ArithmeticError):
    """Report weights that are not finite. Carries `name`, one of them."""

    def __init__(self, name: str, step: int) -> None:
        self.name = name
        super().__init__(
            f"{name} is not finite after {step} steps, so no checkpoint of it was written; "
            "lower --learning-rate, in a new run or with --resume from the last checkpoint"
        )


class CheckpointWriter:
    """Write one checkpoint at a time in a thread. For one rank, and one thread of it."""

    def __init__(self, store: CheckpointStore, *, wait_message_s: float = WAIT_MESSAGE_S) -> None:
        """Write to a store; no thread runs until there is something to write."""
        self.store = store
        self._wait_message_s = wait_message_s
        self._thread: threading.Thread | None = None
        self._error: ReportedError | None = None
        self._results: deque[Written | Missed] = deque()

    @property
    def failed(self) -> bool:
        """Return whether a failure that ends the run has not been raised yet."""
        return self._error is not None

    @property
    def writing(self) -> bool:
        """Return whether one is in flight."""
        return self._thread is not None and self._thread.is_alive()

    def save(
        self,
        progress: Progress,
        copy: Callable[[], Arrays],
        *,
        settings: KeptSettings | None = None,
        accuracy: float | None = None,
    ) -> None:
        """Wait for the one in flight, call `copy`, and begin to write what it returns. An error is kept or told."""
        name, began = name_of(progress), time.monotonic()
        self._wait()
        if self.failed:
            return
        waited = time.monotonic()
        try:
            arrays = copy()
        except MemoryError:
            error = ReportedError(
                "no memory for a copy of the variables, from which a checkpoint is written; "
                "give the host more, or start fewer ranks on it"
            )
            self._results.append(Missed(name=name, error=error))
            return
        copied = time.monotonic()

        def write() -> None:
            try:
                _require_finite(arrays, progress)
                _, size = self.store.save(progress, arrays, settings=settings, accuracy=accuracy)
            except (StorageError, BucketError) as error:
                self._results.append(Missed(name=name, error=error))
            except ReportedError as error:
                self._error = error
            except Exception as error:
                self._error = ReportedError(f"the checkpoint at step {progress.total_steps} failed: {error!r}")
                self._error.__cause__ = error
            else:
                took = Written(
                    name=name,
                    bytes=size,
                    waited_s=waited - began,
                    copied_s=copied - waited,
                    written_s=time.monotonic() - copied,
                )
                self._results.append(took)

        self._thread = threading.Thread(target=write, name="checkpoint", daemon=True)
        self._thread.start()

    def results(self) -> list[Written | Missed]:
        """Return what has been written since the last call, and what could not be."""
        return [self._results.popleft() for _ in range(len(self._results))]

    def check(self) -> None:
        """Raise the error that was kept, if any. Raises ReportedError."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def finish(self) -> None:
        """Wait for the one in flight, and raise its error. Raises ReportedError."""
        self._wait()
        self.check()

    def close(self) -> None:
        """Wait for the one in flight. Where another error ends the run, a failure is printed and not raised."""
        self._wait()
        if self._error is not None:
            print(f"payload.train: warning: {self._error}", flush=True)
            self._error = None
        for result in self.results():
            if isinstance(result, Missed):
                print(f"payload.train: warning: {result.error}", flush=True)

    def _wait(self) -> None:
        if self._thread is None:
            return
        while self._thread.is_alive():
            self._thread.join(self._wait_message_s)
            if self._thread.is_alive():
                print("payload.train: waiting for a checkpoint to be written", flush=True)
        self._thread = None


def _require_finite(arrays: Arrays, progress: Progress) -> None:
    """Raise NotFiniteError for weights that a step has spoilt whose own loss was still finite."""
    for name, array in arrays.items():
        values = array.reshape(-1) if array.dtype.kind == "f" else array.reshape(-1)[:0]
        if not all(np.isfinite(values[start : start + CHUNK]).all() for start in range(0, len(values), CHUNK)):
            raise NotFiniteError(name, progress.total_steps)


class CheckpointReports(Protocol):
    """What is told of each checkpoint, as `payload.training.reporting.checkpoint_reporter` tells it."""

    def written(self, checkpoint: Written, *, interval_s: float) -> None:
        """Report one that was written; from now on there is one each `interval_s` within epochs, 0: none."""

    def missed(self, checkpoint: Missed) -> None:
        """Report one that could not be written."""


class CheckpointSaver:
    """Save checkpoints as they are due. For rank 0 alone, but for `failed`.

    Rank 0 decides by its own clock, and no other rank takes part: after a step all have the same weights, and what a
    checkpoint keeps besides them is rank 0's.
    """

    def __init__(
        self,
        writer: CheckpointWriter,
        policy: SavePolicy,
        *,
        copy: Callable[[], Arrays],
        settings: Mapping[str, Any],
        reports: CheckpointReports,
        costs: StepCosts | None = None,
    ) -> None:
        """Save what `copy` returns, with the settings."""
        self._writer, self._policy, self._reports = writer, policy, reports
        self._copy, self._settings = copy, settings
        self._costs = costs or StepCosts()
        self._was_writing = False
        self._unsaved: ReportedError | None = None

    @property
    def failed(self) -> bool:
        """Return whether a failure that ends the run has not been raised yet."""
        return self._writer.failed

    def save(self, progress: Progress, accuracy: float | None = None) -> None:
        """Copy the variables and begin to write them; report what became of the one before."""
        self._writer.save(progress, self._copy, settings=self._settings, accuracy=accuracy)
        self._settle()
        self._policy.saved()
        self._costs.resume()
        self._was_writing = True

    def begin_epoch(self) -> None:
        """Leave the first step of an epoch, which waits for its images, out of what steps take."""
        self._costs.interrupt()

    def after_step(self, progress: Progress, *, is_last: bool) -> None:
        """Count a step; save if the clock says that a checkpoint is due, but not after the last step of an epoch."""
        writing = self._writer.writing
        self._costs.step(beside=writing or self._was_writing)
        self._was_writing = writing
        if not writing:
            self._settle()
        if not is_last and self._policy.within_epoch():
            self.save(progress)

    def save_after_epoch(self, progress: Progress, accuracy: float) -> None:
        """Save if a checkpoint is due after this epoch, or by the clock. Raises ReportedError for what ends the run."""
        if self._policy.after_epoch(progress.epoch, accuracy) or self._policy.within_epoch():
            self.save(progress, accuracy)
        self._writer.check()

    def save_stopped(self, progress: Progress) -> str:
        """Save in the middle of an epoch, wait until it is written, and return its name. Raises ReportedError."""
        self.save(progress)
        self.finish()
        return name_of(progress)

    def finish(self) -> None:
        """Wait until the last checkpoint is written. Raises ReportedError where it could not be."""
        self._writer.finish()
        self._settle()
        if self._unsaved:
            error, self._unsaved = self._unsaved, None
            raise error

    def _settle(self) -> None:
        """Report what has been written or missed, and let the policy know the cost."""
        for result in self._writer.results():
            slowed_s = self._costs.take()
            if isinstance(result, Missed):
                self._unsaved = result.error
                self._reports.missed(result)
                continue
            self._unsaved = None
            written = dataclasses.replace(result, slowed_s=slowed_s)
            self._policy.wrote(cost_s=written.cost_s, written_s=written.written_s)
            self._reports.written(written, interval_s=self._policy.interval_s)
