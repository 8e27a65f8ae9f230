"""Write checkpoints in the background: the variables are copied between two steps, a thread writes them.

At most one is in flight. A place that takes no checkpoint, as a full disk, is told by what `results` returns, and the
next attempt may find room. Any other failure is kept: `failed` shows it at any time and at no cost, `check` and
`finish` raise it. So rank 0 can report it to the others with the sums of its next step.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from agent.errors import ReportedError
from agent.files.atomic_write import StorageError
from agent.staging.s3_streams import BucketError
from payload.training.checkpoints.store import CheckpointStore, Settings, name_of
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
        settings: Settings | None = None,
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
