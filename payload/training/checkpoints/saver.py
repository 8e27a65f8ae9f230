"""Save checkpoints when they are due. A thread writes each one while training continues."""

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
from payload.settings.learning_rate import LOWER_RATES
from payload.settings.training import OutputSettings
from payload.training.checkpoints.checkpoint_files import CheckpointStore, KeptSettings, name_of
from payload.training.checkpoints.save_policy import SavePolicy, StepCosts
from payload.training.progress import Progress
from payload.training.reporting.metrics_file import Metrics
from payload.training.reporting.step_timer import RunTotals
from payload.training.safetensors_io import CHUNK, Arrays

WAIT_MESSAGE_S: Final = 60.0
"""Time between messages about the wait."""
REPORTED_GROWTH: Final = 1.25
"""Report the interval again when it has grown by this factor."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """A written checkpoint, and the time it took."""

    name: str
    bytes: int
    waited_s: float
    """Time that training waited for the previous checkpoint."""
    copied_s: float
    """Time that training waited while the variables were copied."""
    written_s: float
    """Time to write it, during training."""
    slowed_s: float = 0.0
    """Total delay of the training steps during the write."""

    @property
    def cost_s(self) -> float:
        """Return the training time that the checkpoint cost."""
        return self.waited_s + self.copied_s + self.slowed_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class Missed:
    """A checkpoint that was not written, because the storage was full or unreachable, or memory ran out."""

    name: str
    error: ReportedError


class NotFiniteError(ReportedError, ArithmeticError):
    """Weights are not finite. `name`: one of the variables."""

    def __init__(self, name: str, step: int) -> None:
        self.name = name
        super().__init__(f"{name} is not finite after {step} steps, so no checkpoint was written; {LOWER_RATES}")


class CheckpointReporter:
    """Report checkpoints on rank 0. Other ranks report nothing."""

    def __init__(self, metrics: Metrics | None, totals: RunTotals, settings: OutputSettings) -> None:
        """`metrics`: None on other ranks. `totals`: receives the cost and the missed checkpoints."""
        self._metrics, self._totals, self._settings = metrics, totals, settings
        self._reported_s = 60 * settings.checkpoint_minutes

    def written(self, checkpoint: Written, *, interval_s: float) -> None:
        """Add a written checkpoint's cost to the totals, and report the checkpoint in metrics.jsonl.

        Print a line if `interval_s`, the time between checkpoints by the clock, is now much longer than requested.
        """
        self._totals.checkpoint_seconds += checkpoint.cost_s
        if not self._metrics:
            return
        self._metrics.event(
            "checkpoint",
            checkpoint=checkpoint.name,
            bytes=checkpoint.bytes,
            waited_s=checkpoint.waited_s,
            copied_s=checkpoint.copied_s,
            written_s=checkpoint.written_s,
            slowed_s=checkpoint.slowed_s,
            interval_s=interval_s,
        )
        if interval_s > self._reported_s * REPORTED_GROWTH:
            self._reported_s = interval_s
            print(
                f"payload.train: a checkpoint costs {checkpoint.cost_s:.1f} s of training, so it is written every "
                f"{interval_s / 60:.1f} min within epochs, not every {self._settings.checkpoint_minutes:g} min, to use "
                f"at most {self._settings.checkpoint_cost_percent:g}% of the time (--checkpoint-cost-percent)",
                flush=True,
            )

    def missed(self, checkpoint: Missed) -> None:
        """Report a checkpoint that could not be written: in the totals, as a printed warning and in metrics.jsonl."""
        error = checkpoint.error
        why = error.what if isinstance(error, StorageError | BucketError) else error
        self._totals.checkpoints_missed.append(f"{checkpoint.name}: {why}")
        print(
            f"payload.train: warning: checkpoint {checkpoint.name} was not written: {why}. Training "
            "continues, and tries the next checkpoint when it is due; until then, a failure loses more steps",
            flush=True,
        )
        if self._metrics:
            self._metrics.event("checkpoint_missed", checkpoint=checkpoint.name, reason=str(why))


class CheckpointSaver:
    """Save checkpoints when they are due. One thread at a time writes.

    On ranks other than 0, only `failed`, `begin_epoch` and `close` may be used.

    Rank 0 decides by its own clock, without communication. After a step all ranks have the same weights, and everything
    else in a checkpoint belongs to rank 0.
    """

    def __init__(
        self,
        store: CheckpointStore,
        policy: SavePolicy,
        *,
        copy: Callable[[], Arrays],
        settings: KeptSettings,
        reporter: CheckpointReporter,
        costs: StepCosts | None = None,
        wait_message_s: float = WAIT_MESSAGE_S,
    ) -> None:
        """Save the arrays that `copy` returns, with `settings`. The thread starts with the first checkpoint."""
        self._store, self._policy, self._reporter = store, policy, reporter
        self._copy, self._settings = copy, settings
        self._costs = costs or StepCosts()
        self._wait_message_s = wait_message_s
        self._thread: threading.Thread | None = None
        self._was_writing = False
        self._error: ReportedError | None = None
        """An error that must end the run, until it is raised."""
        self._unsaved: ReportedError | None = None
        """The reason why the latest checkpoint is missing."""
        self._results: deque[Written | Missed] = deque()

    @property
    def failed(self) -> bool:
        """Return whether writing a checkpoint failed with an error that ends the run and is still to be raised.

        Full or unreachable storage and missing memory do not end the run (`Missed`).
        """
        return self._error is not None

    @property
    def writing(self) -> bool:
        """Return whether a checkpoint is being written."""
        return self._thread is not None and self._thread.is_alive()

    def begin_epoch(self) -> None:
        """Exclude the first step of an epoch from step times, because it waits for its images."""
        self._costs.interrupt()

    def after_step(self, progress: Progress, *, is_last: bool) -> None:
        """Count a step, and report the checkpoints that were written meanwhile.

        Save a checkpoint if one is due by the clock, except after the last step of an epoch. An error is stored, not
        raised.
        """
        writing = self.writing
        self._costs.step(beside=writing or self._was_writing)
        self._was_writing = writing
        if not writing:
            self._settle()
        if not is_last and self._policy.within_epoch():
            self.save(progress)

    def save_after_epoch(self, progress: Progress, accuracy: float) -> None:
        """Save a checkpoint if one is due after this epoch, which reached `accuracy`, or by the clock.

        Raises ReportedError if writing a checkpoint failed with an error that ends the run. Does not wait until the new
        one is written.
        """
        if self._policy.after_epoch(progress.epoch, accuracy) or self._policy.within_epoch():
            self.save(progress, accuracy)
        self._check()

    def save_stopped(self, progress: Progress) -> str:
        """Save a checkpoint, wait until it is written, and return its name. Raises ReportedError if this fails."""
        self.save(progress)
        self.finish()
        return name_of(progress)

    def save(self, progress: Progress, accuracy: float | None = None) -> None:
        """Wait for the checkpoint in progress, copy the variables, and start a thread that writes the new one.

        An error is stored, not raised. While an error that ends the run is stored, no further checkpoint is written.
        """
        began = time.monotonic()
        self._wait()
        if not self.failed:
            self._begin(progress, accuracy, began)
        self._settle()
        self._policy.saved()
        self._costs.resume()
        self._was_writing = True

    def finish(self) -> None:
        """Wait until the last checkpoint is written, and report it. Raises ReportedError if it was not written."""
        self._wait()
        self._check()
        self._settle()
        if self._unsaved:
            error, self._unsaved = self._unsaved, None
            raise error

    def close(self) -> None:
        """Wait for the checkpoint in progress.

        If a checkpoint failed, a warning is printed and no error raised, because another error may be ending the run.
        """
        self._wait()
        missed = [result.error for result in self._results if isinstance(result, Missed)]
        for error in ([self._error] if self._error else []) + missed:
            print(f"payload.train: warning: {error}", flush=True)
        self._error = None
        self._results.clear()

    def _begin(self, progress: Progress, accuracy: float | None, began: float) -> None:
        """Copy the variables and start the writing thread. If memory runs out, record a missed checkpoint instead.

        `began`: monotonic time at which training began to wait.
        """
        name, waited = name_of(progress), time.monotonic()
        try:
            arrays = self._copy()
        except MemoryError:
            error = ReportedError(
                "not enough memory for the copy of the variables that a checkpoint needs; "
                "use a host with more memory, or fewer ranks per host"
            )
            self._results.append(Missed(name=name, error=error))
            return
        copied = time.monotonic()

        def write() -> None:
            try:
                _require_finite(arrays, progress)
                _, size = self._store.save(progress, arrays, settings=self._settings, accuracy=accuracy)
            except (StorageError, BucketError) as error:
                self._results.append(Missed(name=name, error=error))
            except ReportedError as error:
                self._error = error
            except Exception as error:
                self._error = ReportedError(
                    f"the checkpoint at step {progress.total_steps} could not be written: "
                    f"{type(error).__name__}: {error}; to continue from the checkpoint before it: `fab resume`, or "
                    "repeat the command with --resume"
                )
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

    def _wait(self) -> None:
        if self._thread is None:
            return
        while self._thread.is_alive():
            self._thread.join(self._wait_message_s)
            if self._thread.is_alive():
                print("payload.train: waiting until the previous checkpoint is written", flush=True)
        self._thread = None

    def _check(self) -> None:
        """Raise the stored error, if any."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _settle(self) -> None:
        """Report written and missed checkpoints, and update the policy's cost estimate."""
        while self._results:
            result = self._results.popleft()
            slowed_s = self._costs.take()
            if isinstance(result, Missed):
                self._unsaved = result.error
                self._reporter.missed(result)
                continue
            self._unsaved = None
            written = dataclasses.replace(result, slowed_s=slowed_s)
            self._policy.wrote(cost_s=written.cost_s, written_s=written.written_s)
            self._reporter.written(written, interval_s=self._policy.interval_s)


def _require_finite(arrays: Arrays, progress: Progress) -> None:
    """Raise NotFiniteError if weights are not finite. The loss of the step that spoiled them may have been finite."""
    for name, array in arrays.items():
        values = array.reshape(-1) if array.dtype.kind == "f" else array.reshape(-1)[:0]
        if not all(np.isfinite(values[start : start + CHUNK]).all() for start in range(0, len(values), CHUNK)):
            raise NotFiniteError(name, progress.total_steps)
