"""Report a run's progress and speed: printed lines, metrics.jsonl and TensorBoard events. Only rank 0 reports."""

from __future__ import annotations

from collections.abc import Sequence

from payload.settings.training import StepSpan
from payload.training.checkpoints.resume import StartPoint
from payload.training.checkpoints.saver import CheckpointReporter
from payload.training.plan import TrainingPlan
from payload.training.progress import Progress, StepSums
from payload.training.reporting.metrics_file import Metrics
from payload.training.reporting.profiling import Profiler
from payload.training.reporting.result_file import Result, Scores
from payload.training.reporting.step_timer import DataWait, RunTotals, StepTimer
from payload.training.reporting.stragglers import Straggler, StragglerWatch
from payload.training.reporting.tensorboard import TensorBoard
from payload.training.reporting.tensorboard_events import EVENTS_DIRECTORY
from payload.training.train_state import TrainState


class Reporter:
    """Report on rank 0 only, and measure the time of the training steps on every rank."""

    def __init__(self, plan: TrainingPlan, state: TrainState) -> None:
        """Open metrics and events on rank 0. Raises StorageError."""
        run_dir, root = plan.config.run_dir, plan.ranks.is_root
        self._plan = plan
        self._metrics = Metrics(run_dir, started=plan.started) if root else None
        self._tensorboard = TensorBoard(plan, state) if root else None
        span = StepSpan.parse(plan.settings.profile_steps)
        self.profiler = Profiler(run_dir / EVENTS_DIRECTORY, span if root else None)
        self.totals = RunTotals()
        self.checkpoints = CheckpointReporter(self._metrics, self.totals, plan.settings)
        self._timer = StepTimer()
        self._stragglers = StragglerWatch(plan.ranks.hosts)

    def close(self) -> None:
        """Close metrics, events and the profile. Raises StorageError if the profile cannot be written."""
        if self._metrics:
            self._metrics.close()
        if self._tensorboard:
            self._tensorboard.close()
        self.profiler.close()

    def start_timer(self) -> StepTimer:
        """Start timing the steps of an epoch, and return the timer."""
        self._timer = StepTimer()
        return self._timer

    @property
    def waited_s(self) -> float:
        """Return the seconds that this rank has waited for its images in the current epoch."""
        return self._timer.waited_s

    def start(self, start_point: StartPoint) -> None:
        """On rank 0, report the start of a run in metrics.jsonl, in TensorBoard and as printed lines.

        The lines include damaged checkpoints that were skipped and settings that differ from the checkpoint's.
        """
        if not self._metrics or not self._tensorboard:
            return
        plan = self._plan
        self._tensorboard.start(start_point.progress.epoch)
        self._metrics.event(
            "start",
            recipe=plan.config.recipe.name,
            epochs=plan.schedule.epochs,
            steps_per_epoch=plan.schedule.steps(0),
            ranks=plan.ranks.size,
            global_batch=plan.schedule.phase(0).global_batch,
            train_images=plan.data.train.examples,
            validation_images=plan.data.validation.examples if plan.data.validation else 0,
            test_images=plan.data.test.examples,
            network=plan.settings.network,
            variant=plan.variant,
            peak_learning_rate=plan.schedule.peak,
            resumed_from=start_point.resumed_from,
            passed_over="; ".join(start_point.faults) or None,
            changed="; ".join(start_point.changes) or None,
            **plan.rank_setup.values(),
        )
        for fault in start_point.faults:
            goes_on = (
                (f"continuing from {start_point.resumed_from}")
                if start_point.resumed_from
                else "starting from the beginning"
            )
            print(f"payload.train: warning: skipped {fault}; {goes_on}", flush=True)
        for change in start_point.changes:
            print(f"payload.train: continuing with {change}", flush=True)
        hosts = ", ".join(dict.fromkeys(plan.ranks.hosts))
        resumed = f", resumed from {start_point.resumed_from}" if start_point.resumed_from else ""
        print(
            f"{plan.config.recipe.name}: {plan.schedule.epochs} epochs of {plan.schedule.steps(0)} steps, global batch "
            f"{plan.schedule.phase(0).global_batch} on {plan.ranks.size} ranks ({hosts}){resumed}",
            flush=True,
        )
        print(plan.rank_setup, flush=True)

    def step(self, progress: Progress, size: int, sums: StepSums, learning_rate: float) -> None:
        """Count a step of `size` images over all ranks, and report it on rank 0.

        Rank 0 reports stragglers, reports the step's figures at most twice a second, and writes the profile when its
        last step is done. `progress`: position after the step. `sums`: the step's results over all ranks. Raises
        StorageError.
        """
        seconds = self._timer.step(size)
        self.totals.training_seconds += seconds
        self.totals.images += size
        if self._metrics:
            for each in self._stragglers.step(sums.own_s, seconds):
                self._straggler(self._metrics, progress, each)
        if self._metrics and self._tensorboard and self._metrics.step_due():
            figures = {
                "images_per_s": self._timer.images_per_s,
                "loss": sums.loss / size,
                "accuracy": sums.correct / size,
                "learning_rate": learning_rate,
            }
            schedule = self._plan.schedule
            self._metrics.event(
                "step",
                epoch=progress.epoch + 1,
                step=progress.step,
                steps_per_epoch=schedule.steps(progress.epoch),
                eta_s=schedule.images_left(progress.epoch, progress.step) / self._timer.images_per_s,
                **figures,
            )
            self._tensorboard.step(progress.total_steps, figures)
        self.profiler.after(progress.total_steps)

    def _straggler(self, metrics: Metrics, progress: Progress, straggler: Straggler) -> None:
        metrics.event(
            "straggler",
            epoch=progress.epoch + 1,
            step=progress.step,
            rank=straggler.rank,
            host=straggler.host,
            own_s=straggler.own_s,
            median_s=straggler.median_s,
            lost=straggler.lost,
            is_over=straggler.is_over,
            text=str(straggler),
        )
        print(f"payload.train: {'' if straggler.is_over else 'warning: '}{straggler}", flush=True)

    def epoch(self, progress: Progress, train: Scores, test: Scores, seconds: float, waits: Sequence[float]) -> None:
        """On rank 0, report a completed epoch in metrics.jsonl, in TensorBoard and as a printed line.

        Its time is added to the totals, also on rank 0 only. `train`, `test`: results on training images and on the
        split that is evaluated during training. `seconds`: the epoch's wall time, including evaluation. `waits`:
        seconds that each rank waited for training images. Raises StorageError.
        """
        if not self._metrics or not self._tensorboard:
            return
        schedule = self._plan.schedule
        wait = DataWait.longest(waits, self._plan.ranks.hosts, self._timer.seconds)
        self.totals.epoch_seconds.append(seconds)
        self.totals.data_wait_seconds += wait.seconds
        speed, split = self._timer.images_per_s, self._plan.evaluated
        self._metrics.event(
            "epoch",
            epoch=progress.epoch,
            total_steps=progress.total_steps,
            global_batch=schedule.phase(progress.epoch - 1).global_batch,
            image_size=self._plan.training_view(progress.epoch - 1).size[0],
            train_loss=train.loss,
            train_accuracy=train.accuracy,
            skipped_records=progress.skipped,
            images_per_s=speed,
            seconds=seconds,
            data_wait_s=wait.seconds,
            data_wait_rank=wait.rank,
            weights_agree=True,
            **{
                f"{split}_loss": test.loss,
                f"{split}_accuracy": test.accuracy,
                f"{split}_top5_accuracy": test.top5_accuracy,
            },
        )
        self._tensorboard.epoch(
            progress.epoch,
            {
                "loss/train": train.loss,
                f"loss/{split}": test.loss,
                "accuracy/train": train.accuracy,
                f"accuracy/{split}": test.accuracy,
                "accuracy/train top 5": train.top5_accuracy,
                f"accuracy/{split} top 5": test.top5_accuracy,
                "images_per_s": speed,
                "data_wait": wait.fraction,
                "learning_rate": schedule.rate(progress.epoch - 1, schedule.steps(progress.epoch - 1) - 1),
            },
        )
        print(
            f"epoch {progress.epoch}/{schedule.epochs}: loss {train.loss:.4f}, accuracy {train.accuracy:.2%}; "
            f"{split} loss {test.loss:.4f}, accuracy {test.accuracy:.2%}; {speed:,.0f} images/s, {seconds:.1f} s"
            f"{f'; {wait}' if wait.matters else ''}",
            flush=True,
        )

    def trained(self) -> None:
        """On rank 0, add training images, filters and embeddings to TensorBoard, if the settings request pictures.

        Raises StorageError.
        """
        if self._tensorboard:
            self._tensorboard.end()

    def stopped(self, progress: Progress, checkpoint: str) -> None:
        """On rank 0, report a run that was stopped on request, in metrics.jsonl and as a printed line.

        `checkpoint`: name of the checkpoint to resume from.
        """
        if not self._metrics:
            return
        self._metrics.event("stopped", epoch=progress.epoch + 1, step=progress.step, checkpoint=checkpoint)
        print(
            f"stopped at epoch {progress.epoch + 1}, step {progress.step}, with checkpoint {checkpoint}; to continue: "
            "`fab resume`, or repeat the command with --resume",
            flush=True,
        )

    def end(self, result: Result) -> None:
        """On rank 0, report the end of a completed run in metrics.jsonl and as a printed line.

        Also print a warning if model.onnx was not written.
        """
        if not self._metrics:
            return
        self._metrics.event(
            "end", test_accuracy=result.test_accuracy, seconds=result.seconds, images_per_s=result.images_per_s
        )
        print(
            f"done: test accuracy {result.test_accuracy:.2%} in {result.seconds:.1f} s "
            f"({result.training_seconds:.1f} s of training, {result.images_per_s:,.0f} images/s)",
            flush=True,
        )
        if result.onnx_refused:
            print(f"warning: model.onnx was not written: {result.onnx_refused}", flush=True)
