"""Train as one of a pair: `python -m benchmarks.pair_program JSON`, started by `benchmarks.two_ranks`.

Each process is bound and tuned as the payload does it, takes the same steps on synthetic images, reads the sums after
each as the trainer does, and prints one line of JSON. Ranks under Horovod then take turns: some steps as before, as
many that add up nothing. What else runs on the machine meets both alike.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from payload.settings import Settings
from payload.training.rank_setup import set_up_rank

RATE: Final = 1e-6
"""Small, so that random labels leave the numbers finite; a step takes as long as with any other."""
MOMENTUM: Final = 0.9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What is trained in which way, and how long."""

    way: str
    """alone: no Horovod; ranks: under horovodrun; mwms: TensorFlow's own strategy, by TF_CONFIG."""
    network: str
    batch: int
    warmup: int
    """Steps before those that are timed: the first is traced, and memory pools fill in the next."""
    steps: int
    turns: int
    """How often ranks change between steps that add up gradients and steps that do not."""
    turn: int
    """Steps of each."""


def measure(work: Work) -> dict[str, Any]:
    """Train, and return times in seconds."""
    settings = Settings(network=work.network, batch_per_rank=work.batch, momentum=MOMENTUM)
    rank_setup = set_up_rank(settings, os.environ)
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # as payload.train does: Keras does without it
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(rank_setup.tuning.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(rank_setup.tuning.inter_op_threads)
    step = {"alone": _alone, "ranks": _ranks, "mwms": _strategy}[work.way](work, settings)
    for _ in range(work.warmup):
        step()
    gc.freeze()
    seconds = []
    cpu_began = time.process_time()
    for _ in range(work.steps):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    cpu_seconds = (time.process_time() - cpu_began) / work.steps
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "chosen": str(rank_setup.tuning),
        "turns": _take_turns(work, settings, step) if work.way == "ranks" else [],
    }


def _take_turns(work: Work, settings: Settings, together: Callable[[], Any]) -> list[tuple[float, float]]:
    """Return the mean step of each turn, s: with a reduction, and without one."""
    alone = _alone(work, settings)
    for _ in range(work.warmup):
        alone()

    def mean(step: Callable[[], Any]) -> float:
        began = time.perf_counter()
        for _ in range(work.turn):
            step()
        return (time.perf_counter() - began) / work.turn

    found = []
    for _ in range(work.turns):
        together()  # the ranks meet
        found.append((mean(together), mean(alone)))
    return found


def _images(work: Work) -> tuple[Any, Any, Any]:
    """Return the network, and one batch on the device: uint8 images and int32 labels."""
    import numpy as np
    import tensorflow as tf

    from payload.models.registry import network

    known = network(work.network)
    drawn = np.random.default_rng(1)
    images = drawn.integers(0, 256, (work.batch, *known.image_shape)).astype(np.uint8)
    labels = drawn.integers(0, known.classes, work.batch).astype(np.int32)
    return known, tf.constant(images), tf.constant(labels)


def _alone(work: Work, settings: Settings) -> Callable[[], Any]:
    """Take the payload's own step, as a process without Horovod does."""
    from payload.training import distributed

    distributed.size = lambda: 1  # what it would find
    return _payload(work, settings)


def _ranks(work: Work, settings: Settings) -> Callable[[], Any]:
    """Take the payload's own step together with the other rank."""
    from payload.training import distributed

    distributed.join()
    return _payload(work, settings)


def _payload(work: Work, settings: Settings) -> Callable[[], Any]:
    import numpy as np

    from payload.training import distributed
    from payload.training.optimizers.optimizer import make_optimizer
    from payload.training.train_step import make_train_step

    known, images, labels = _images(work)
    model = known.build(known.image_shape, known.classes)
    train = make_train_step(model, make_optimizer(settings, model), settings)
    weights, total = np.ones(work.batch, np.float32), work.batch * distributed.size()
    return lambda: train(images, labels, weights, total, RATE, False, 0).numpy()


def _strategy(work: Work, settings: Settings) -> Callable[[], Any]:
    """Do what TensorFlow's guide to several workers does, in a loop of one's own."""
    import keras
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    known, images, labels = _images(work)
    with strategy.scope():
        model = known.build(known.image_shape, known.classes)
        optimizer = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
        optimizer.build(model.trainable_variables)

    def replica(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(tf.cast(images, tf.float32) / 255, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / (work.batch * strategy.num_replicas_in_sync)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step() -> Any:
        losses = strategy.run(replica, (images, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    return lambda: step().numpy()


if __name__ == "__main__":
    print("FIGURES " + json.dumps(measure(Work(**json.loads(sys.argv[1])))), flush=True)
