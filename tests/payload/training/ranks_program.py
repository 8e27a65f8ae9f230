"""Runs that stop, fail and resume: on one rank (`alone`), then on two ranks (`together`) in a second process.

test_ranks.py reads what each rank prints at the end. The runs train on 71 digits in global batches of 33: three steps
per epoch.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any
from unittest import mock

import numpy as np
import tensorflow as tf

from agent.errors import ReportedError
from payload.data.dataset import Batch, DataError, Dataset
from payload.data.pipeline.batches import test_batches, training_batches
from payload.models import lenet
from payload.recipes.train_config import TrainConfig
from payload.settings import Settings
from payload.train import StopRequest
from payload.training import distributed, evaluation, trainer
from payload.training import epoch as epochs
from payload.training.checkpoints import checkpoint_files as stores
from payload.training.checkpoints.checkpoint_files import read_header, store_for
from payload.training.checkpoints.checkpoint_storage import ARRAYS, DirectoryStorage, Fill
from payload.training.checkpoints.saver import CheckpointSaver
from payload.training.distributed import Ranks
from payload.training.epoch import TrainingContext
from payload.training.progress import StepSums
from payload.training.schedule import Schedule, schedule_for
from payload.training.train_state import TrainState, new_state
from tests.payload.training.checkpoints.test_checkpoint_storage import Memory
from tests.payload.training.small_network import small_network
from tests.payload.training.small_run import DATA, configuration, train

DROPOUT = ("--optimizer", "adam", "--ema-decay", "0.9", "--learning-rate", "0.001")

EACH_STEP = ("--checkpoint-minutes", "0.00000001", "--checkpoint-cost-percent", "0")


def small() -> AbstractContextManager[Any]:
    """Replace LeNet by a small network with dropout and normalization."""
    return mock.patch.object(lenet, "lenet", small_network)


def after(calls: int) -> Callable[[], bool]:
    """Return a function that requests a stop at the n-th step."""
    left = iter(range(calls - 1, -1, -1))
    return lambda: next(left, 1) == 0


class Losses:
    """Record the summed loss of each step within a block."""

    def __enter__(self) -> list[float]:
        self._step = epochs._step
        kept: list[float] = []

        def step(context: TrainingContext, batch: Batch, rate: float, stop: bool, own_s: float) -> StepSums:
            sums = self._step(context, batch, rate, stop, own_s)
            kept.append(sums.loss)
            return sums

        epochs._step = step
        return kept

    def __exit__(self, *_: object) -> None:
        epochs._step = self._step


def error_of(action: Callable[[], object]) -> str:
    try:
        action()
    except ReportedError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def result(run_dir: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    return document


def events(run_dir: Path, event: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["event"] == event]


def names(config: TrainConfig) -> list[str]:
    return store_for(config.settings, config.run_dir).names()


def resumed(root: Path, rank: int) -> dict[str, Any]:
    """Train without interruption, and with a stop in mid-epoch that rank 1 requests; compare the two bit for bit.

    The network has dropout. Also return this rank's dropout seeds at the end of each run.
    """
    straight, broken = root / "straight", root / "broken"
    states: list[TrainState] = []

    def kept(settings: Settings, data: Dataset, schedule: Schedule) -> TrainState:
        states.append(new_state(settings, data, schedule))
        return states[-1]

    with small(), mock.patch.object(trainer, "new_state", kept):
        with Losses() as expected:
            train(configuration(straight, *DROPOUT))
        with Losses() as found:
            train(configuration(broken, *DROPOUT), after(4 if rank == 1 else 99))
            stopped_with = names(configuration(broken))
            train(configuration(broken, *DROPOUT, "--resume"))
    seeds = [
        [variable.numpy().tolist() for name, variable in sorted(state.variables.items()) if "/seed/" in name]
        for state in (states[0], states[-1])
    ]
    return {
        "same_losses": found == expected,
        "same_weights": result(straight)["weights_sha256"] == result(broken)["weights_sha256"],
        "same_accuracy": result(straight)["test_accuracy"] == result(broken)["test_accuracy"],
        "same_train_loss": events(straight, "epoch")[-1]["train_loss"] == events(broken, "epoch")[-1]["train_loss"],
        "stopped_with": stopped_with,
        "resumed_from": result(broken)["resumed_from"],
        "without_resume": error_of(lambda: train(configuration(broken))),
        "seeds": seeds[0],
        "seeds_of_the_resumed": seeds[1],
    }


def changed(root: Path) -> dict[str, Any]:
    """Continue with other settings: some may change, and one must not."""
    run_dir = root / "changed"
    train(configuration(run_dir, "--epochs", "1"))
    (run_dir / "result.json").unlink()
    refused = error_of(lambda: train(configuration(run_dir, "--resume", "--seed", "2")))
    train(configuration(run_dir, "--resume", "--epochs", "2", "--learning-rate", "0.01", "--keep-checkpoints", "1"))
    return {"refused": refused, "told": events(run_dir, "start")[-1]["changed"], "kept": names(configuration(run_dir))}


def by_the_clock(root: Path) -> dict[str, Any]:
    """Save at every step, as the clock would request it, and keep the best."""
    config = configuration(root / "clock", *EACH_STEP, "--keep-best")
    train(config)
    store = store_for(config.settings, config.run_dir)
    headers = {name: read_header(store.storage, name) for name in store.names()}
    written = events(config.run_dir, "checkpoint")
    return {
        "written": [event["checkpoint"] for event in written],
        "fields": sorted(written[0]),
        **{name: result(config.run_dir)[name] for name in ("weights_sha256", "test_accuracy", "checkpoint_seconds")},
        "accuracies": {name: header.accuracy for name, header in headers.items()},
        "positions": {name: [header.progress.epoch, header.progress.step] for name, header in headers.items()},
    }


def diverged(root: Path) -> dict[str, Any]:
    """Let an infinite rate spoil the weights at the first step of the second epoch, then continue with finite rates."""
    config, finite = configuration(root / "diverged"), Schedule.rate
    Schedule.rate = lambda self, epoch, step: math.inf if (epoch, step) == (1, 0) else finite(self, epoch, step)  # type: ignore[method-assign]
    try:
        said = error_of(lambda: train(config))
        kept = names(config)
        # A stop request at this moment, while the loss is still from the previous weights.
        spoiled = error_of(lambda: train(configuration(config.run_dir, "--resume"), after(1)))
    finally:
        Schedule.rate = finite  # type: ignore[method-assign]
    train(configuration(config.run_dir, "--resume"))
    return {"said": said, "spoiled": spoiled, "kept": kept, "resumed_from": result(config.run_dir)["resumed_from"]}


class Disk:
    """Run a function between the writer and its directory within a block."""

    def __init__(self, before: Callable[[str], None]) -> None:
        self._before = before

    def __enter__(self) -> None:
        self._put = put = DirectoryStorage.put
        before = self._before

        def disturbed(storage: DirectoryStorage, name: str, size: int, fill: Fill) -> None:
            def late(file: IO[bytes]) -> bytes:
                before(name)
                return fill(file)

            put(storage, name, size, late)

        DirectoryStorage.put = disturbed  # type: ignore[method-assign, assignment]

    def __exit__(self, *_: object) -> None:
        DirectoryStorage.put = self._put  # type: ignore[method-assign]


def full_disk(root: Path) -> dict[str, Any]:
    """Let the disk be full at the first two checkpoints and at the last one; then free space and resume."""
    config = configuration(root / "full", *EACH_STEP)

    def full(name: str) -> None:
        if not "step-00000003" <= name <= "step-00000005":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Disk(full):
        said = error_of(lambda: train(config))
    kept, missed = names(config), events(config.run_dir, "checkpoint_missed")
    train(configuration(config.run_dir, "--resume"))
    return {"said": said, "missed": missed, "kept": kept, "resumed_from": result(config.run_dir)["resumed_from"]}


def crashed(root: Path) -> dict[str, Any]:
    """Die in mid-epoch with checkpoints by the clock, flip a bit of the newest one, and resume."""
    config = configuration(root / "crashed", *EACH_STEP)
    calls = iter(range(5))

    def die() -> bool:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return False

    try:
        train(config, die)
    except KeyboardInterrupt:
        kept = names(config)
    arrays = config.run_dir / "checkpoints" / kept[0] / ARRAYS
    content = bytearray(arrays.read_bytes())
    content[len(content) // 2] ^= 1
    arrays.write_bytes(content)
    with Losses() as rest:
        train(configuration(config.run_dir, *EACH_STEP, "--resume"))
    found = result(config.run_dir)
    return {
        "kept": kept,
        "rest": rest,
        "told": events(config.run_dir, "start")[-1]["passed_over"],
        **{name: found[name] for name in ("passed_over", "resumed_from", "weights_sha256", "test_accuracy")},
    }


def terminated(root: Path) -> dict[str, Any]:
    """Send SIGTERM while a checkpoint is being written, and delay the write until after the next request."""
    config = configuration(root / "terminated", "--epochs", "1000")
    stop = StopRequest(config.run_dir, watch_file=False)
    sent: list[str] = []
    asked, save = threading.Event(), CheckpointSaver.save

    def slow(name: str) -> None:
        if not sent:
            sent.append(name)
            os.kill(os.getpid(), signal.SIGTERM)
            asked.wait(60)
            time.sleep(0.5)

    def saving(saver: CheckpointSaver, *given: Any, **further: Any) -> None:
        if sent:
            asked.set()
        save(saver, *given, **further)

    with Disk(slow), mock.patch.object(CheckpointSaver, "save", saving):
        outcome = train(config, stop)
    last = events(config.run_dir, "stopped")[-1]["checkpoint"]
    store = store_for(config.settings, config.run_dir)
    newest, faults = store.newest_valid()
    return {
        "stopped": outcome.stopped,
        "sent_at": sent,
        "names": store.names(),
        "said": last,
        "newest": newest.name if newest else None,
        "faults": len(faults),
        "waited_s": max(event["waited_s"] for event in events(config.run_dir, "checkpoint")),
    }


def ending_early(root: Path, rank: int, first: bool) -> str:
    """Let the data of one rank end after its first batch, or fail at it."""
    whole = training_batches

    def batches(*given: Any, **further: Any) -> Iterator[Batch]:
        found = whole(*given, **further)
        if further["rank"] != rank:
            yield from found
        elif first:
            raise DataError("/data/train-00001: record 7 is damaged")
        else:
            yield next(found)

    epochs.training_batches = batches  # type: ignore[attr-defined]
    try:
        return error_of(lambda: train(configuration(root / f"short-{first}")))
    finally:
        epochs.training_batches = whole  # type: ignore[attr-defined]


def damaged_in_evaluation(root: Path) -> str:
    """Let the test data of rank 1 fail."""

    def batches(*given: Any, **further: Any) -> Iterator[Batch]:
        if further["rank"] == 1:
            raise DataError("/data/test-00001: record 7 is damaged")
        return test_batches(*given, **further)

    evaluation.test_batches = batches  # type: ignore[attr-defined]
    try:
        return error_of(lambda: train(configuration(root / "untested")))
    finally:
        evaluation.test_batches = test_batches  # type: ignore[attr-defined]


def in_a_bucket(root: Path) -> dict[str, Any]:
    """Stop and resume with checkpoints in a bucket, which this process keeps in memory."""
    flags = ("--checkpoint-dir", "s3://my-runs/one/checkpoints", "--checkpoint-epochs", "2", "--keep-checkpoints", "1")
    config, bucket = configuration(root / "bucket", *flags), Memory()
    with Losses() as losses, mock.patch.object(stores, "BucketClient", lambda prefix: bucket):
        train(config, after(4))
        train(configuration(config.run_dir, *flags, "--resume"))
        left = names(config)
    return {
        "losses": losses,
        "resumed_from": result(config.run_dir)["resumed_from"],
        "left": left,
        "local": (config.run_dir / "checkpoints").exists(),
    }


def summed_as(sums: Callable[[Sequence[Any]], list[Any]]) -> AbstractContextManager[Any]:
    """Replace the sum over the ranks within the step."""
    return mock.patch.object(distributed, "sum_in_graph", sums)


def unaveraged(root: Path) -> str:
    """Train without averaging gradients, as DistributedOptimizer does under Keras 3."""
    with summed_as(list):
        return error_of(lambda: train(configuration(root / "unaveraged")))


def loss_of_rank_1(root: Path, ranks: Ranks) -> str:
    """Train while only the loss of rank 1 is NaN."""
    healthy = distributed.sum_in_graph

    def sick(tensors: Sequence[Any]) -> list[Any]:
        *gradients, own = tensors
        return healthy([*gradients, own * (math.nan if ranks.rank == 1 else 1.0)])  # one graph, two values

    with summed_as(sick):
        return error_of(lambda: train(configuration(root / "nan")))


def fresh_state(settings: Settings) -> TrainState:
    return new_state(settings, DATA, schedule_for(settings, examples=DATA.train.examples, ranks=1))


def one_bit(ranks: Ranks, root: Path) -> str:
    """Flip the last bit of one weight on rank 1 and compare."""
    state = fresh_state(configuration(root / "unused").settings)
    if ranks.rank == 1:
        bias = state.variables["model/lenet/fc2/bias"]
        bias.assign(np.nextafter(bias.numpy(), np.float32(1), dtype=np.float32))
    return error_of(
        lambda: distributed.require_agreement(ranks, state.digest(), what="weights", when="now", advice="Stop.")
    )


def full_metrics(root: Path, ranks: Ranks) -> str:
    """Let the disk be full when rank 0 writes metrics."""
    run_dir = root / "metrics"
    if ranks.is_root:
        run_dir.mkdir()
        (run_dir / "metrics.jsonl").symlink_to("/dev/full")
    return error_of(lambda: train(configuration(run_dir)))


def alone(root: Path) -> dict[str, Any]:
    train(configuration(root / "moved"), after(4))
    with Losses() as straight:
        clock = by_the_clock(root)
    return {
        "straight": straight,
        "clock": clock,
        "crashed": crashed(root),
        "changed": changed(root),
        "terminated": terminated(root),
        "bucket": in_a_bucket(root),
    }


def together(root: Path) -> dict[str, Any]:
    ranks = distributed.with_hosts(distributed.join(), f"host{distributed.join().rank}")
    # With 33 images per rank, two ranks would use a global batch of 66, but the checkpoint's 33 applies.
    config = configuration(root / "moved", "--resume")
    each = dataclasses.replace(config.settings, global_batch=0, batch_per_rank=33)
    with Losses() as moved:
        train(dataclasses.replace(config, settings=each))
    return {
        "moved": moved,
        "result": result(config.run_dir),
        "event_files": len(list((config.run_dir / "events").iterdir())),
        "dropout": resumed(root / "two", ranks.rank),
        "ended": ending_early(root, rank=1, first=False),
        "damaged": ending_early(root, rank=0, first=True),
        "untested": damaged_in_evaluation(root),
        "full": full_disk(root),
        "metrics": full_metrics(root, ranks),
        "diverged": diverged(root),
        "nan": loss_of_rank_1(root, ranks),
        "unaveraged": unaveraged(root),
        "hosts": ranks.hosts,
        "one_bit": one_bit(ranks, root),
        "sums": distributed.sum_values(np.array([1, 2**40 + 1], np.int64), name="count").tolist(),
    }


def main() -> None:
    mode, root = sys.argv[1], Path(sys.argv[2])
    distributed.join()
    tf.config.threading.set_intra_op_parallelism_threads(1)  # as each training requests; fixed after first use
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print("FOUND " + json.dumps({"alone": alone, "together": together}[mode](root)), flush=True)
    distributed.leave()


if __name__ == "__main__":
    main()
