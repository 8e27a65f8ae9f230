"""Train and evaluate one recipe on all ranks. Every function here runs on every rank unless noted otherwise."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from payload.data.dataset import Dataset
from payload.recipes.train_config import TrainConfig
from payload.settings import Settings
from payload.training import distributed
from payload.training.checkpoints.checkpoint_files import CheckpointStore, store_for
from payload.training.checkpoints.resume import StartPoint, checkpoint_settings, restore_or_begin, with_batch_of_resumed
from payload.training.checkpoints.save_policy import SavePolicy
from payload.training.checkpoints.saver import CheckpointSaver
from payload.training.distributed import Ranks
from payload.training.epoch import DivergedError, TrainingContext, TrainingEnd, require_equal_weights, train_epoch
from payload.training.evaluation import Evaluator
from payload.training.evaluation_step import make_evaluation_step
from payload.training.export.export_network import Exported, export_at_end
from payload.training.export.settings_file import write_model_spec
from payload.training.plan import TrainingPlan
from payload.training.progress import Progress
from payload.training.rank_setup import RankSetup, set_up_tensorflow
from payload.training.reporting.collect_result import result_of
from payload.training.reporting.confusion_matrix import Confusion, Mistake, write_confusion, write_mistakes
from payload.training.reporting.reporter import Reporter
from payload.training.reporting.result_file import Provenance, Result, Scores, write_result
from payload.training.schedule import schedule_for
from payload.training.train_state import TrainState, new_state
from payload.training.train_step import make_train_step

_COPY: Final = "Copy the same files to all nodes, for example with `fab stage-data`"


def train_and_evaluate(
    config: TrainConfig,
    data: Dataset,
    *,
    provenance: Provenance,
    host: str | None,
    started: float,
    stop_requested: Callable[[], bool],
    rank_setup: RankSetup,
) -> TrainingEnd:
    """Train until the last epoch or until a stop is requested; return the final position and whether it was stopped.

    Rank 0 writes metrics, checkpoints and the result, and prints. `host`: this rank's host name; None: the system's
    name. `started`: Unix time at which the process started. Horovod is initialized here; the caller calls
    `distributed.leave`. Raises ReportedError on all ranks.
    """
    with distributed.raising_lost_ranks():
        ranks = distributed.join()
        set_up_tensorflow(rank_setup, ranks.local_rank)
        ranks = distributed.with_hosts(ranks, host)
        store = store_for(config.settings, config.run_dir)
        plan = plan_run(config, data, ranks, store, provenance=provenance, started=started, rank_setup=rank_setup)
        state = new_state(plan.settings, data, plan.schedule)
        start_point = begin(plan, state, store)
        return _train_as_planned(plan, state, start_point, store, stop_requested)


def plan_run(
    config: TrainConfig,
    data: Dataset,
    ranks: Ranks,
    store: CheckpointStore,
    *,
    provenance: Provenance,
    started: float,
    rank_setup: RankSetup,
) -> TrainingPlan:
    """Return the plan of a new or resumed run, after checking that all ranks have the same data (collective).

    A resumed run keeps its batch, unless the settings determine the batch. Raises ReportedError on all ranks.
    """
    distributed.require_agreement(ranks, data.digest(), what="data", when="at the start", advice=_COPY)
    settings = config.settings
    if config.resume:
        settings = distributed.broadcast_value(
            distributed.attempt(ranks, lambda: _settings_of_resumed(config.settings, store, ranks)), name="settings"
        )
    return TrainingPlan(
        config=dataclasses.replace(config, settings=settings),
        data=data,
        schedule=schedule_for(settings, examples=data.train.examples, ranks=ranks.size),
        ranks=ranks,
        rank_setup=rank_setup,
        placements=distributed.gather_values(str(rank_setup.placed.placement), name="placements"),
        provenance=provenance,
        started=started,
    )


def begin(plan: TrainingPlan, state: TrainState, store: CheckpointStore) -> StartPoint:
    """Restore the network if a run is resumed, copy it to all ranks, and return the start point (collective).

    Afterwards the ranks compare their weights, and each rank gets its own seeds for dropout. Raises ReportedError on
    all ranks, for example if checkpoints exist without `resume`.
    """
    ranks, settings = plan.ranks, plan.settings
    batch = plan.schedule.phase(0).global_batch
    fresh = Progress(recipe=plan.config.recipe.name, seed=settings.seed, global_batch=batch)

    def on_root() -> StartPoint:
        if not ranks.is_root:
            return StartPoint(progress=fresh)
        kept_settings = checkpoint_settings(settings, batch)
        return restore_or_begin(state.restore, store, fresh, settings=kept_settings, resume=plan.config.resume)

    start_point = distributed.broadcast_value(distributed.attempt(ranks, on_root), name="beginning")
    distributed.broadcast_variables(list(state.variables.values()))
    require_equal_weights(ranks, state, "after the broadcast at the start")
    state.separate_dropout_seeds(ranks.rank)
    return start_point


def _train_as_planned(
    plan: TrainingPlan,
    state: TrainState,
    start_point: StartPoint,
    store: CheckpointStore,
    stop_requested: Callable[[], bool],
) -> TrainingEnd:
    """Train from the start point until the last epoch or until a stop is requested; return how the run ended.

    In any case, also after an error, wait for the checkpoint in progress, and close the files of the reports.
    """
    ranks, settings, schedule = plan.ranks, plan.settings, plan.schedule
    reporter = distributed.attempt(ranks, lambda: Reporter(plan, state))
    policy = SavePolicy(
        epochs=settings.checkpoint_epochs,
        last_epoch=schedule.epochs,
        minutes=settings.checkpoint_minutes,
        cost_limit=settings.checkpoint_cost_percent / 100,
        keep_best=settings.keep_best,
        best=start_point.best_accuracy,
    )
    saver = CheckpointSaver(
        store,
        policy,
        copy=state.arrays,
        settings=checkpoint_settings(settings, schedule.phase(0).global_batch),
        reporter=reporter.checkpoints,
    )
    with contextlib.closing(saver), contextlib.closing(reporter):
        context = TrainingContext(
            plan=plan,
            state=state,
            train_step=make_train_step(state.model, state.optimizer, settings),
            evaluator=Evaluator(
                state=state,
                step=make_evaluation_step(state.model),
                ranks=ranks,
                training_batch=-(-schedule.largest_batch // ranks.size),
                threads=settings.decode_threads,
            ),
            reporter=reporter,
            saver=saver,
            stop_requested=stop_requested,
        )
        return _train(context, start_point)


def _settings_of_resumed(settings: Settings, store: CheckpointStore, ranks: Ranks) -> Settings:
    """Return the settings, on rank 0 with the batch of the run to resume. Other ranks receive these by broadcast."""
    return with_batch_of_resumed(settings, store, ranks=ranks.size) if ranks.is_root else settings


def _train(context: TrainingContext, start_point: StartPoint) -> TrainingEnd:
    """Run the remaining epochs, then write the outputs and the result; return how the run ended.

    After each epoch, evaluate the network, compare the ranks' weights, report, and save a checkpoint if one is due. If
    a stop is requested, save a checkpoint and return early, without outputs and result. Raises DivergedError if the
    loss is no longer finite, or another ReportedError.
    """
    plan, reporter, evaluator = context.plan, context.reporter, context.evaluator
    _on_root(context, functools.partial(_start, context, start_point))
    progress = start_point.progress
    train: Scores | None = None
    test: Scores | None = None
    while progress.epoch < plan.schedule.epochs:
        began = time.monotonic()
        progress, stopped = train_epoch(context, progress)
        if stopped:
            _on_root(context, functools.partial(_stop, context, progress))
            return TrainingEnd(progress=progress, stopped=True)
        train = progress.figures()
        test = evaluator.evaluate(plan.data.validation or plan.data.test, plan.test_view(progress.epoch))
        if not math.isfinite(test.loss):
            rate = plan.schedule.rate(progress.epoch, progress.step - 1)
            raise DivergedError(test.loss, progress.epoch + 1, progress.step, rate)
        progress = progress.next_epoch()
        require_equal_weights(plan.ranks, context.state, f"after epoch {progress.epoch}")
        waits = distributed.gather_values(reporter.waited_s, name="waits")
        seconds = time.monotonic() - began
        _on_root(context, functools.partial(_end_epoch, context, progress, train, test, seconds, waits))
    # test is None if the resumed run had completed all epochs and only its result was missing.
    if test is None or plan.data.validation:
        validation, test = test, evaluator.evaluate(plan.data.test, plan.last_test_view)
    else:
        validation = None
    _on_root(context, context.saver.finish)
    confusion = None
    if plan.settings.confusion_matrix:
        confusion = evaluator.confusion(plan.data.test, plan.last_test_view)
    outputs = functools.partial(_write_outputs, context, progress, confusion)
    exported = distributed.attempt(plan.ranks, outputs if plan.ranks.is_root else Exported)
    result = functools.partial(
        result_of,
        plan,
        context.state,
        reporter.totals,
        progress,
        train=train,
        validation=validation,
        test=test,
        start_point=start_point,
        exported=exported,
    )
    _on_root(context, lambda: _end(context, result()))
    return TrainingEnd(progress=progress, stopped=False)


def _on_root(context: TrainingContext, action: Callable[[], None]) -> None:
    """Run an action on rank 0 only, and fail on all ranks if it fails (collective)."""
    ranks = context.plan.ranks
    distributed.attempt(ranks, action if ranks.is_root else lambda: None)


def _start(context: TrainingContext, start_point: StartPoint) -> None:
    """Write settings.json and report the start (rank 0)."""
    height, width, channels = context.state.model.input_shape[1:]
    write_model_spec(context.plan.config.run_dir, context.plan.model_spec((height, width, channels)))
    context.reporter.start(start_point)


def _end_epoch(
    context: TrainingContext,
    progress: Progress,
    train: Scores,
    test: Scores,
    seconds: float,
    waits: Sequence[float],
) -> None:
    """Report an epoch, and start writing a checkpoint if one is due (rank 0)."""
    context.reporter.epoch(progress, train, test, seconds, waits)
    context.saver.save_after_epoch(progress, test.accuracy)


def _stop(context: TrainingContext, progress: Progress) -> None:
    """Save a checkpoint within the epoch, and report the stop (rank 0)."""
    context.reporter.stopped(progress, context.saver.save_stopped(progress))


def _write_outputs(
    context: TrainingContext, progress: Progress, confusion: tuple[Any, list[Mistake]] | None
) -> Exported:
    """Write the outputs requested in the settings, and return the exported files (rank 0). Raises StorageError.

    `confusion`: counts of the confusion matrix, and the most confident mistakes.
    """
    plan, state = context.plan, context.state
    height, width, channels = state.model.input_shape[1:]
    spec = plan.model_spec((height, width, channels))
    if confusion is not None:
        counts, mistakes = confusion
        write_confusion(plan.config.run_dir, Confusion(labels=spec.labels, counts=counts))
        write_mistakes(plan.config.run_dir, mistakes, spec.labels)
    context.reporter.trained()
    return export_at_end(plan.config.run_dir, spec, state, progress.total_steps)


def _end(context: TrainingContext, result: Result) -> None:
    """Report the end of the run and write result.json (rank 0)."""
    context.reporter.end(result)
    write_result(context.plan.config.run_dir, result)
