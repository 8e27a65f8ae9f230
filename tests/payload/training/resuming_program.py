"""What runs do that stop, fail and go on: on one rank (`alone`), then on two (`together`) in another start.

test_resuming.py reads what each rank prints at the end. Digits, 71 for training, in global batches of 33: three steps
an epoch.
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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any
from unittest import mock

import keras

from agent.errors import ReportedError
from payload.data.pipeline.batches import test_batches, training_batches
from payload.data.types import Batch, DataError, Dataset
from payload.recipes.config import TrainConfig
from payload.settings import Settings
from payload.train import StopRequest
from payload.training import distributed, evaluation, trainer
from payload.training import epoch as epochs
from payload.training.checkpoints.saver import CheckpointWriter
from payload.training.checkpoints.storage import ARRAYS, DirectoryStorage, Fill
from payload.training.checkpoints.store import read_header, store_for
from payload.training.context import TrainingContext
from payload.training.progress import StepSums
from payload.training.schedule import Schedule
from payload.training.state import TrainState, new_state
from tests.payload.training.small_run import configuration, train

DROPOUT = (
    *("--network", "fashion-vgg", "--image-size", "8", "--optimizer", "adam"),
    *("--ema-decay", "0.9", "--learning-rate", "0.001"),
)

EACH_STEP = ("--checkpoint-minutes", "0.00000001", "--checkpoint-cost-percent", "0")


def narrow() -> AbstractContextManager[Any]:
    """Give convolutions an eighth of their filters: what is drawn, kept and taken up again is the same in kind."""
    layer = keras.layers.Conv2D
    return mock.patch.object(keras.layers, "Conv2D", lambda n, *words, **more: layer(n // 8, *words, **more))


def after(calls: int) -> Callable[[], bool]:
    """Return what asks to stop at the n-th step."""
    left = iter(range(calls - 1, -1, -1))
    return lambda: next(left, 1) == 0


class Losses:
    """Keep the summed loss of each step that is taken within a block."""

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


def resumed(root: Path, *flags: str) -> dict[str, Any]:
    """Train straight, and again with a stop in mid-epoch; compare the two bit for bit."""
    straight, broken = root / "straight", root / "broken"
    with Losses() as expected:
        train(configuration(straight, *flags))
    with Losses() as found:
        train(configuration(broken, *flags), after(4))
        kept = names(configuration(broken))
        train(configuration(broken, *flags, "--resume"))
    return {
        "same_losses": found == expected,
        "same_weights": result(straight)["weights_sha256"] == result(broken)["weights_sha256"],
        "same_accuracy": result(straight)["test_accuracy"] == result(broken)["test_accuracy"],
        "stopped_with": kept,
        "resumed_from": result(broken)["resumed_from"],
    }


def resumed_apart(root: Path) -> dict[str, Any]:
    """Do the same with dropout, and tell by which seeds this rank drew its units at the end of each run."""
    states: list[TrainState] = []

    def kept(settings: Settings, data: Dataset, schedule: Schedule) -> TrainState:
        states.append(new_state(settings, data, schedule))
        return states[-1]

    with narrow(), mock.patch.object(trainer, "new_state", kept):
        found = resumed(root, *DROPOUT)
    seeds = [
        [variable.numpy().tolist() for name, variable in sorted(state.variables.items()) if "/seed/" in name]
        for state in (states[0], states[-1])
    ]
    return {**found, "seeds": seeds[0], "seeds_of_the_resumed": seeds[1]}


def changed(root: Path) -> dict[str, Any]:
    """Go on with other settings: one that may change, one that must not."""
    run_dir = root / "changed"
    train(configuration(run_dir, "--epochs", "1"))
    (run_dir / "result.json").unlink()
    refused = error_of(lambda: train(configuration(run_dir, "--resume", "--seed", "2")))
    train(configuration(run_dir, "--resume", "--epochs", "2", "--learning-rate", "0.01", "--keep-checkpoints", "1"))
    return {"refused": refused, "told": events(run_dir, "start")[-1]["changed"], "kept": names(configuration(run_dir))}


def by_the_clock(root: Path) -> dict[str, Any]:
    """Save at every step, as the clock would ask for it, and keep the best."""
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
    """Let an infinite rate spoil the weights at the first step of the second epoch, then go on with finite ones."""
    config, finite = configuration(root / "diverged"), Schedule.rate
    Schedule.rate = lambda self, epoch, step: math.inf if (epoch, step) == (1, 0) else finite(self, epoch, step)  # type: ignore[method-assign]
    try:
        said = error_of(lambda: train(config))
        kept = names(config)
        # Asked to stop just then, while the loss is still that of the weights before.
        spoilt = error_of(lambda: train(configuration(config.run_dir, "--resume"), after(1)))
    finally:
        Schedule.rate = finite  # type: ignore[method-assign]
    train(configuration(config.run_dir, "--resume"))
    return {"said": said, "spoilt": spoilt, "kept": kept, "resumed_from": result(config.run_dir)["resumed_from"]}


class Disk:
    """Put something between the writer and its directory within a block."""

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
    """Let the disk be full at the second checkpoint, make room, go on."""
    config = configuration(root / "full")

    def full(name: str) -> None:
        if name > "step-00000003":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Disk(full):
        said = error_of(lambda: train(config))
    kept = names(config)
    train(configuration(config.run_dir, "--resume"))
    return {"said": said, "kept": kept, "resumed_from": result(config.run_dir)["resumed_from"]}


def full_disk_within_an_epoch(root: Path) -> dict[str, Any]:
    """Let the disk be full at checkpoints that the clock asked for, until there is room."""

    def full(name: str) -> None:
        if name < "step-00000003":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    config = configuration(root / "early", *EACH_STEP)
    with Disk(full):
        said = error_of(lambda: train(config))
    return {
        "said": said,
        "missed": result(config.run_dir)["checkpoints_missed"],
        "events": events(config.run_dir, "checkpoint_missed"),
        "kept": names(config),
    }


def crashed(root: Path) -> dict[str, Any]:
    """Die in mid-epoch with checkpoints by the clock, flip a bit of the newest, go on."""
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
    """Send SIGTERM while a checkpoint is being written, and let it take a while longer than until the next is asked."""
    config = configuration(root / "terminated", "--epochs", "1000")
    stop = StopRequest(config.run_dir, watch_file=False)
    sent: list[str] = []
    asked, save = threading.Event(), CheckpointWriter.save

    def slow(name: str) -> None:
        if not sent:
            sent.append(name)
            os.kill(os.getpid(), signal.SIGTERM)
            asked.wait(60)
            time.sleep(0.5)

    def saving(writer: CheckpointWriter, *given: Any, **further: Any) -> None:
        if sent:
            asked.set()
        save(writer, *given, **further)

    with Disk(slow), mock.patch.object(CheckpointWriter, "save", saving):
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
    """Stop, and go on from a bucket; the endpoint comes with the environment."""
    flags = ("--checkpoint-dir", "s3://my-runs/one/checkpoints", "--checkpoint-epochs", "2", "--keep-checkpoints", "1")
    config = configuration(root / "bucket", *flags)
    with Losses() as losses:
        train(config, after(4))
        train(configuration(config.run_dir, *flags, "--resume"))
    return {
        "losses": losses,
        "resumed_from": result(config.run_dir)["resumed_from"],
        "left": names(config),
        "local": (config.run_dir / "checkpoints").exists(),
    }


def alone(root: Path) -> dict[str, Any]:
    train(configuration(root / "moved"), after(4))
    with Losses() as straight:
        clock = by_the_clock(root)
    with narrow():
        dropout = resumed(root / "dropout", *DROPOUT)
    return {
        "straight": straight,
        "clock": clock,
        "crashed": crashed(root),
        "dropout": dropout,
        "changed": changed(root),
        "terminated": terminated(root),
        "bucket": in_a_bucket(root),
    }


def together(root: Path) -> dict[str, Any]:
    # A batch for each rank would make more of them over two, were it not for the checkpoint.
    config = configuration(root / "moved", "--resume")
    each = dataclasses.replace(config.settings, global_batch=0, batch_per_rank=33)
    with Losses() as moved:
        train(dataclasses.replace(config, settings=each))
    return {
        "moved": moved,
        "dropout": resumed_apart(root / "two"),
        "ended": ending_early(root, rank=1, first=False),
        "damaged": ending_early(root, rank=0, first=True),
        "untested": damaged_in_evaluation(root),
        "full": full_disk(root),
        "full_within": full_disk_within_an_epoch(root),
        "diverged": diverged(root),
    }


def main() -> None:
    mode, root = sys.argv[1], Path(sys.argv[2])
    distributed.join()
    print("FOUND " + json.dumps({"alone": alone, "together": together}[mode](root)), flush=True)
    distributed.leave()


if __name__ == "__main__":
    main()
