"""What two ranks do together, in one start of two processes; test_distributed.py reads what each prints at the end."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from agent.errors import ReportedError
from agent.files.atomic_write import StorageError
from payload.data.pipeline.batches import training_batches
from payload.data.types import Batch, DataError, View
from payload.settings import Settings
from payload.training import distributed
from payload.training.distributed import RankFailedError, Ranks
from payload.training.schedule import schedule_for
from payload.training.state import TrainState, new_state
from payload.training.train_step import make_train_step
from tests.payload.training.small_run import DATA, configuration, train


def metrics(run_dir: Path, event: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["event"] == event]


def result(run_dir: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    return document


def error_of(action: Callable[[], object]) -> ReportedError | None:
    try:
        action()
    except ReportedError as error:
        return error
    return None


def unaveraged(root: Path) -> str:
    """Train with gradients that nobody averages, as DistributedOptimizer does under Keras 3."""
    averaged = distributed.sum_in_graph
    distributed.sum_in_graph = lambda tensors: list(tensors)
    try:
        error = error_of(lambda: train(configuration(root / "unaveraged")))
    finally:
        distributed.sum_in_graph = averaged
    return f"{type(error).__name__}: {error}"


def fresh_state(settings: Settings) -> TrainState:
    return new_state(settings, DATA, schedule_for(settings, examples=DATA.train.examples, ranks=1))


def gradient_difference(root: Path, ranks: Ranks) -> float:
    """Train an epoch on both ranks, and the same on this one alone; return the largest difference of a weight."""
    settings = configuration(root / "unused").settings
    together, alone = fresh_state(settings), fresh_state(settings)
    step = make_train_step(together.model, together.optimizer, settings)
    for batch in batches(settings, ranks.rank, ranks.size):
        step(batch.images, batch.labels, batch.weights, batch.batch_size, 0.1, False, 0)
    textbook = keras.optimizers.SGD(learning_rate=0.1, momentum=settings.momentum)
    for batch in batches(settings, 0, 1):
        reference_step(alone.model, textbook, batch.images[: batch.batch_size], batch.labels[: batch.batch_size])
    pairs = zip(together.model.get_weights(), alone.model.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def batches(settings: Settings, rank: int, ranks: int) -> Iterator[Batch]:
    view = View(size=(28, 28), rotation_deg=settings.rotation_deg, zoom_fraction=settings.zoom_fraction)
    return training_batches(DATA.train, view, seed=1, epoch=0, global_batch=33, rank=rank, ranks=ranks)


def reference_step(model: Any, optimizer: Any, images: Any, labels: Any) -> None:
    """Take a step on one process as a textbook would: the gradient of the mean over the whole batch."""
    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        logits = model(tf.cast(images, tf.float32) / 255, training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), model.trainable_variables, strict=True))


def one_bit(ranks: Ranks, root: Path) -> str:
    """Flip the last bit of one weight on rank 1 and compare."""
    state = fresh_state(configuration(root / "unused").settings)
    if ranks.rank == 1:
        bias = state.variables["model/lenet/fc2/bias"]
        bias.assign(np.nextafter(bias.numpy(), np.float32(1), dtype=np.float32))
    error = error_of(
        lambda: distributed.require_agreement(ranks, state.digest(), what="weights", when="now", advice="Stop.")
    )
    return f"{type(error).__name__}: {error}"


def failure_on_rank_1(ranks: Ranks) -> str:
    def action() -> None:
        if ranks.rank == 1:
            raise DataError("file x is damaged")

    error = error_of(lambda: distributed.attempt(ranks, action))
    expected = DataError if ranks.rank == 1 else RankFailedError
    return str(error) if isinstance(error, expected) else f"wrong: {error!r}"


def stop_and_resume(root: Path, ranks: Ranks) -> dict[str, Any]:
    """Stop a run in mid-epoch through rank 1 alone, resume it, and compare it with one that was never stopped."""
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return ranks.rank == 1 and calls == 5

    straight, broken = root / "straight", root / "broken"
    train(configuration(straight))
    stopped = train(configuration(broken), stop)
    again = error_of(lambda: train(configuration(broken)))
    finished = train(configuration(broken, "--resume"))
    return {
        "stopped": stopped.stopped and not finished.stopped,
        "stopped_at": [stopped.progress.epoch, stopped.progress.step],
        "without_resume": str(again),
        "same_weights": result(straight)["weights_sha256"] == result(broken)["weights_sha256"],
        "same_figures": metrics(straight, "epoch")[-1]["train_loss"] == metrics(broken, "epoch")[-1]["train_loss"],
        "resumed_from": result(broken)["resumed_from"],
        "straight": result(straight),
        "checkpoints": sorted(path.name for path in (straight / "checkpoints").glob("step-*")),
        "events": len(list((straight / "events").iterdir())),
    }


def diverged(root: Path, ranks: Ranks) -> str:
    """Train while rank 1 alone meets a loss that is no number."""
    healthy = distributed.sum_in_graph

    def sick(tensors: Sequence[Any]) -> list[Any]:
        *gradients, own = tensors
        return healthy([*gradients, own * (math.nan if ranks.rank == 1 else 1.0)])  # one graph, two values

    distributed.sum_in_graph = sick
    try:
        return str(error_of(lambda: train(configuration(root / "diverged"))))
    finally:
        distributed.sum_in_graph = healthy


def full_disk(root: Path, ranks: Ranks) -> str:
    """Let rank 0 meet a full disk when it writes metrics."""
    run_dir = root / "full"
    if ranks.is_root:
        run_dir.mkdir()
        (run_dir / "metrics.jsonl").symlink_to("/dev/full")
    error = error_of(lambda: train(configuration(run_dir)))
    expected = StorageError if ranks.is_root else RankFailedError
    return str(error) if isinstance(error, expected) else f"wrong: {error!r}"


def main() -> None:
    ranks = distributed.join()
    tf.config.threading.set_intra_op_parallelism_threads(1)  # as each training asks for; once used, it is fixed
    tf.config.threading.set_inter_op_parallelism_threads(1)
    root = Path(distributed.broadcast_value(tempfile.mkdtemp(dir=sys.argv[1]), name="root"))
    ranks = distributed.with_hosts(ranks, f"host{ranks.rank}")
    found: dict[str, Any] = {"hosts": ranks.hosts, "unaveraged": unaveraged(root)}
    found["gradient_difference"] = gradient_difference(root, ranks)
    found["one_bit"] = one_bit(ranks, root)
    found["failure"] = failure_on_rank_1(ranks)
    found["stop"] = stop_and_resume(root, ranks)
    found["diverged"] = diverged(root, ranks)
    found["full"] = full_disk(root, ranks)
    everyone = distributed.sum_values(np.array([1, 2**40 + 1], np.int64), name="count")
    found["sums"] = everyone.tolist()
    print("FOUND " + json.dumps(found), flush=True)
    distributed.leave()


if __name__ == "__main__":
    main()
