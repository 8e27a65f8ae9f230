"""Test that Horovod works on this machine: two ranks run an allreduce and one training step, then compare weights.

The test runs over Gloo and then over MPI. Keras 3 and Horovod can be combined such that nothing fails and gradients are
not averaged. So the ranks get different data, take a step as payload.train does, and compare their weights afterwards.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.environment.toolchain import HorovodError
from agent.hardware.machine import describe_unresolved_name
from agent.spec.horovod import CONTROLLERS

ROOT: Final = Path(__file__).parents[2]
RANKS: Final = 2
TIMEOUT_S: Final = 180


def command(python: str, controller: str) -> list[str]:
    """Build the command that starts the ranks with the Python `python`, over a controller (gloo or mpi).

    Run it in ROOT. It avoids scripts in bin/, which contain the environment's path.
    """
    # 127.0.0.1 rather than `localhost`: Horovod takes a name that does not resolve for another host, and uses SSH.
    hosts = ["-np", str(RANKS), "-H", f"127.0.0.1:{RANKS}"]
    launcher = [python, "-m", "agent.launch.horovodrun", f"--{controller}", *hosts]
    rank = ["env", "-C", str(ROOT), python, "-m", "agent.environment.horovod_selftest"]
    return [*launcher, *rank]


def prove(*, environ: Mapping[str, str]) -> str:
    """Run the test with this Python, over Gloo and then over MPI; return a line that summarizes the result.

    Raises HorovodError if the test fails over one of them, or if this machine's name does not resolve.
    """
    if reason := describe_unresolved_name():
        raise HorovodError(reason)
    times = ", ".join(f"{controller} {_prove(controller, environ):.1f} s" for controller in CONTROLLERS)
    return f"Horovod works: {RANKS} ranks, exact allreduce, equal weights after a training step ({times})"


def _prove(controller: str, environ: Mapping[str, str]) -> float:
    """Run the test over one controller; return its duration in seconds. Raises HorovodError."""
    # One thread per rank and no GPU start-up messages: the test is small, and the machine may be too.
    env = dict(environ) | {"TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    try:
        finished = subprocess.run(
            command(sys.executable, controller),
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        printed = error.stdout or b""  # bytes, even with text=True
        how = f"did not finish within {TIMEOUT_S} s; if the machine is busy, repeat it"
        raise _failed(controller, how, printed.decode(errors="replace")) from error
    if finished.returncode != 0:
        raise _failed(controller, f"failed with exit status {finished.returncode}", finished.stdout)
    return time.monotonic() - began


def _failed(controller: str, how: str, output: str) -> HorovodError:
    last = "\n".join(output.splitlines()[-15:])
    shown = f"the end of its output:\n{last}" if last else "it printed nothing"
    return HorovodError(f"Horovod's self-test over {controller} {how}; {shown}")


def check(*, ranks: int, sum_error: float, weights_moved: float, weights_differ: float) -> None:
    """Exit with a message and status 1 if the test failed on the ranks.

    It succeeds if `ranks` is RANKS, the allreduce was exact, and a training step changed the weights equally on all
    ranks. `sum_error` and `weights_differ` are the largest absolute differences over all ranks, `weights_moved` is the
    largest change of a weight.
    """
    if ranks != RANKS:
        sys.exit(f"{ranks} of {RANKS} ranks took part in Horovod's allreduce; all must take part")
    if sum_error != 0:
        sys.exit(f"the sum of Horovod's allreduce differs from the exact sum by {sum_error:g}; they must be equal")
    if weights_moved == 0 or weights_differ != 0:
        sys.exit(
            f"after a training step, the weights changed by {weights_moved:g} and differ between ranks "
            f"by {weights_differ:g}; they must change, and must be equal on all ranks"
        )


def main() -> None:
    """Run the test as one of the ranks that `prove` starts: an allreduce, then a training step on data of its own.

    Exits with a message if the sum is not exact, or if the weights did not change or differ between ranks.
    """
    import horovod.tensorflow as hvd
    import keras
    import tensorflow as tf

    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    # On every rank: the sum of 1000 numbers, each the rank plus one.
    numbers, place = tf.fill([1000], float(hvd.rank() + 1)), "/GPU:0" if gpus else ""
    summed = hvd.allreduce(numbers, op=hvd.Sum, name="proof", device_dense=place)
    expected = hvd.size() * (hvd.size() + 1) / 2
    error = float(tf.reduce_max(tf.abs(summed - expected)))

    keras.utils.set_random_seed(hvd.rank())  # different weights and data on each rank
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(4)])
    optimizer = keras.optimizers.SGD(learning_rate=0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    # Keras 3 wraps TensorFlow's variables, which Horovod needs; Keras 2, up to TensorFlow 2.15, does not.
    weights = [v if isinstance(v, tf.Variable) else v.value for v in model.trainable_variables]
    hvd.broadcast_variables(weights, root_rank=0)
    before = tf.concat([tf.reshape(weight, [-1]) for weight in weights], axis=0)
    images, labels = tf.random.normal([32, 8]), tf.random.uniform([32], maxval=4, dtype=tf.int32)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step() -> None:
        """Take one step on the average of the ranks' gradients."""
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(labels, model(images), from_logits=True)
            loss = tf.reduce_mean(losses)
        gradients = hvd.grouped_allreduce(tape.gradient(loss, weights), op=hvd.Average)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    step()
    after = tf.concat([tf.reshape(weight, [-1]) for weight in weights], axis=0)
    # On every rank: all the ranks' weights, float32 [ranks, weights].
    everyones = hvd.allgather(after[tf.newaxis, :], name="weights")
    check(
        ranks=hvd.size(),
        sum_error=error,
        weights_moved=float(tf.reduce_max(tf.abs(after - before))),
        weights_differ=float(tf.reduce_max(tf.abs(everyones - everyones[:1]))),
    )
    hvd.shutdown()


if __name__ == "__main__":
    main()
