"""What a run says while it goes: one line an epoch, metrics, TensorBoard events, and its speed. Only rank 0 says it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from payload.settings.step_span import StepSpan
from payload.training.checkpoints.writer import Written
from payload.training.export.model_spec import blueprint_of, write_blueprint
from payload.training.progress import Progress, StepSums
from payload.training.reporting.event_writer import EVENTS_DIRECTORY
from payload.training.reporting.profiling import Profiler
from payload.training.reporting.tensorboard import Board
from payload.training.reporting.throughput import Clock, DataWait
from payload.training.run_files import Figures, Metrics, Result

if TYPE_CHECKING:
    from payload.training.checkpoints.resume import Beginning
    from payload.training.context import Run


class Reporter:
    """Report on rank 0, and keep silent elsewhere; measure the time of the training steps everywhere."""

    def __init__(self, run_dir: Path, *, active: bool, started: float, profiled: StepSpan | None = None) -> None:
        """Open metrics and events where active. `profiled`: steps to profile. Raises StorageError."""
        self._metrics = Metrics(run_dir, started=started) if active else None
        self._board = Board(run_dir) if active else None
        self.profiler = Profiler(run_dir / EVENTS_DIRECTORY, profiled if active else None)
        self._clock = Clock()
        self.training_seconds = 0.0
        self.images = 0
        self.epoch_seconds: list[float] = []
        """Wall time of each epoch that this process took, evaluation included."""
        self.data_wait_seconds = 0.0
        """Sum over these epochs of how long the rank that waited longest waited for images."""

    @property
    def images_per_s(self) -> float:
        """Return training images over all ranks per second of training steps."""
        return self.images / self.training_seconds if self.training_seconds else 0.0

    def close(self) -> None:
        """Close the files."""
        if self._metrics:
            self._metrics.close()
        if self._board:
            self._board.close()
        self.profiler.close()

    def clock(self) -> Clock:
        """Start to measure the steps of an epoch."""
        self._clock = Clock()
        return self._clock

    @property
    def waited_s(self) -> float:
        """Return how long this rank waited for its images in the epoch that is measured."""
        return self._clock.waited_s

    def start(self, run: Run, beginning: Beginning) -> None:
        """Say what is about to run."""
        if not self._metrics or not self._board:
            return
        write_blueprint(run.config.run_dir, blueprint_of(run))
        self._board.start(run, beginning.progress.epoch)
        self._metrics.event(
            "start",
            recipe=run.config.recipe.name,
            epochs=run.schedule.epochs,
            steps_per_epoch=run.schedule.steps(0),
            ranks=run.ranks.size,
            global_batch=run.schedule.phase(0).global_batch,
            train_images=run.data.train.examples,
            validation_images=run.data.validation.examples if run.data.validation else 0,
            test_images=run.data.test.examples,
            network=run.settings.network,
            variant=run.config.variant.name if run.config.variant else None,
            peak_learning_rate=run.schedule.peak,
            resumed_from=beginning.resumed_from,
            passed_over="; ".join(beginning.faults) or None,
            changed="; ".join(beginning.changes) or None,
            **run.arrangement.values(),
        )
        for fault in beginning.faults:
            print(f"payload.train: warning: passed over {fault}", flush=True)
        for change in beginning.changes:
            print(f"payload.train: goes on with {change}", flush=True)
        hosts = ", ".join(dict.fromkeys(run.ranks.hosts))
        resumed = f", resumed from {beginning.resumed_from}" if beginning.resumed_from else ""
        print(
            f"{run.config.recipe.name}: {run.schedule.epochs} epochs of {run.schedule.steps(0)} steps, global batch "
            f"{run.schedule.phase(0).global_batch} on {run.ranks.size} ranks ({hosts}){resumed}",
            flush=True,
        )
        print(run.arrangement, flush=True)

    def step(self, run: Run, progress: Progress, size: int, sums: StepSums, learning_rate: float) -> None:
        """Count a step of `size` images over all ranks; report it, at most twice a second. Raises StorageError."""
        self.training_seconds += self._clock.step(size)
        self.images += size
        figures = StepFigures(
            images_per_s=self._clock.images_per_s,
            loss=sums.loss / size,
            accuracy=sums.correct / size,
            learning_rate=learning_rate,
        )
        self._step(run, progress, figures)
        self.profiler.after(progress.total_steps)

    def _step(self, run: Run, progress: Progress, values: StepFigures) -> None:
        if not self._metrics or not self._board or not self._metrics.step_due():
            return
        left = run.schedule.images_left(progress.epoch, progress.step)
        self._metrics.event(
            "step",
            epoch=progress.epoch + 1,
            step=progress.step,
            steps_per_epoch=run.schedule.steps(progress.epoch),
            images_per_s=values.images_per_s,
            loss=values.loss,
            accuracy=values.accuracy,
            learning_rate=values.learning_rate,
            eta_s=left / values.images_per_s,
        )
        self._board.step(progress.total_steps, dataclasses.asdict(values))

    def epoch(
        self, run: Run, progress: Progress, train: Figures, test: Figures, seconds: float, waits: Sequence[float]
    ) -> None:
        """Report a completed epoch.

        `seconds`: its wall time, evaluation included; `waits`: how long each rank waited for images to train on.
        """
        if not self._metrics or not self._board:
            return
        self.epoch_seconds.append(seconds)
        wait = DataWait.longest(waits, run.ranks.hosts, self._clock.seconds)
        self.data_wait_seconds += wait.seconds
        speed, part = self._clock.images_per_s, run.evaluated
        self._metrics.event(
            "epoch",
            epoch=progress.epoch,
            train_loss=train.loss,
            train_accuracy=train.accuracy,
            skipped_records=progress.skipped,
            images_per_s=speed,
            seconds=seconds,
            data_wait_s=wait.seconds,
            data_wait_rank=wait.rank,
            weights_agree=True,
            **{
                f"{part}_loss": test.loss,
                f"{part}_accuracy": test.accuracy,
                f"{part}_top5_accuracy": test.top5_accuracy,
            },
        )
        self._board.epoch(
            run,
            progress.epoch,
            {
                "loss/train": train.loss,
                f"loss/{part}": test.loss,
                "accuracy/train": train.accuracy,
                f"accuracy/{part}": test.accuracy,
                "accuracy/train top 5": train.top5_accuracy,
                f"accuracy/{part} top 5": test.top5_accuracy,
                "images_per_s": speed,
                "data_wait": wait.part,
                "learning_rate": run.schedule.rate(progress.epoch - 1, run.schedule.steps(progress.epoch - 1) - 1),
            },
        )
        print(
            f"epoch {progress.epoch}/{run.schedule.epochs}: loss {train.loss:.4f}, accuracy {train.accuracy:.2%}; "
            f"{part} loss {test.loss:.4f}, accuracy {test.accuracy:.2%}; {speed:,.0f} images/s, {seconds:.1f} s"
            f"{f'; {wait}' if wait.matters else ''}",
            flush=True,
        )

    def written(self, checkpoints: Sequence[Written]) -> None:
        """Report checkpoints that are there, and what they took."""
        if not self._metrics:
            return
        for written in checkpoints:
            self._metrics.event(
                "checkpoint",
                checkpoint=written.name,
                bytes=written.bytes,
                waited_s=written.waited_s,
                copied_s=written.copied_s,
                written_s=written.written_s,
            )

    def pictures(self, run: Run) -> None:
        """Show in TensorBoard what is wanted of the trained network."""
        if self._board:
            self._board.end(run)

    def stopped(self, progress: Progress, checkpoint: str | None) -> None:
        """Report a run that was asked to stop."""
        if not self._metrics:
            return
        self._metrics.event("stopped", epoch=progress.epoch + 1, step=progress.step, checkpoint=checkpoint)
        print(
            f"stopped at epoch {progress.epoch + 1}, step {progress.step}; go on from {checkpoint} with --resume",
            flush=True,
        )

    def end(self, result: Result) -> None:
        """Report the end of a completed run."""
        if not self._metrics:
            return
        self._metrics.event("end", test_accuracy=result.test_accuracy, seconds=result.seconds)
        print(
            f"done: test accuracy {result.test_accuracy:.2%} in {result.seconds:.1f} s "
            f"({result.training_seconds:.1f} s of training, {result.images_per_s:,.0f} images/s)",
            flush=True,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepFigures:
    """Hold what one step showed, over all ranks."""

    images_per_s: float
    loss: float
    accuracy: float
    learning_rate: float
