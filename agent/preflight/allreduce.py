"""One rank of the proof that the nodes of a run can add up a tensor: exact sums, on every rank.

Started by the pre-flight as the run itself is, on the same hosts with the same slots. Each rank says when it is there
and when it has joined, so that a node that never does is named. On GPUs it measures one matrix product and one
allreduce as well.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from agent.launch.rank import environment, local_interface_with
from agent.preflight import gpu_speed, nccl_log
from agent.spec.run import RunSpec

MARK: Final = "deepcdk-allreduce "
HERE: Final = "deepcdk-here "
ELEMENTS: Final = 1_000_000
"""4 MB of float32: enough to pass by the collectives of small tensors."""
GPU: Final = "/GPU:0"
"""Where ranks add up, if they have a GPU. Outside of a `tf.function` Horovod takes the CPU unless it is told."""


def report(mark: str, **values: object) -> None:
    """Print one line for the pre-flight to read."""
    print(mark + json.dumps(values), flush=True)


def marked(output: str, mark: str) -> list[dict[str, Any]]:
    """Return what ranks reported under a mark; Horovod's launcher puts the rank before each line."""
    found = []
    for line in output.splitlines():
        if mark in line:
            try:
                found.append(json.loads(line.partition(mark)[2]))
            except ValueError:
                continue  # Two ranks' lines in one.
    return found


def read_spec(run_directory: str) -> RunSpec:
    """Read the run's spec."""
    return RunSpec.from_json((Path(run_directory) / "spec.json").read_text(encoding="utf-8"))


def join(spec: RunSpec) -> str:
    """Report that this rank is there, and set its environment as the run's own ranks have it; return its host."""
    host = os.environ.get("HOROVOD_HOSTNAME", "")
    report(HERE, host=host)
    addresses = [each.address for each in spec.hosts if each.name == host]
    interface = local_interface_with(addresses[0]) if addresses else ""
    os.environ.update(environment(spec, os.environ, sys.executable, interface))
    nccl_log.ask_for_it()
    return host


def _speeds(tf: Any, hvd: Any, size: int) -> dict[str, float]:
    """Measure this rank's GPU and the allreduce of `size` bytes over all ranks."""
    matrix = tf.random.stateless_uniform((gpu_speed.EDGE, gpu_speed.EDGE), (0, 1), dtype=tf.float32)
    half = tf.cast(matrix, tf.float16)

    def multiply() -> None:
        for _ in range(gpu_speed.PRODUCTS):
            product = tf.linalg.matmul(half, half)
        float(product[0, 0])  # waits for the GPU, which works in order

    numbers = tf.zeros((size // 4,), tf.float32)

    def add_up() -> None:
        float(hvd.allreduce(numbers, op=hvd.Sum, name="speed", device_dense=GPU)[0])

    return speeds(multiply, add_up, size, hvd.size())


def speeds(multiply: Callable[[], object], add_up: Callable[[], object], size: int, ranks: int) -> dict[str, float]:
    """Time the matrix products and the allreduce of `size` bytes; return the figures by their names in the report."""
    measured = {"matmul_tflops": gpu_speed.matmul_tflops(gpu_speed.median_s(multiply))}
    if ranks > 1:
        measured["bus_gb_s"] = gpu_speed.bus_gb_s(size, ranks, gpu_speed.median_s(add_up))
    return {name: float(f"{value:.4g}") for name, value in measured.items()}


def main(argv: Sequence[str]) -> int:
    """Prove it; the argument is the run's directory."""
    spec = read_spec(argv[0])
    host = join(spec)
    # TensorFlow reads its variables when it is imported, which takes seconds: the node is there by then.
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    size, place = hvd.size(), GPU if gpus else ""
    # Whole numbers below 2**24 add up exactly in float32, in any order.
    values = tf.cast(tf.math.floormod(tf.range(ELEMENTS), 1000), tf.float32)
    expected = values * size + size * (size - 1) / 2
    hvd.allreduce(values, op=hvd.Sum, name="warm-up", device_dense=place)
    began = time.monotonic()
    summed = hvd.allreduce(values + float(hvd.rank()), op=hvd.Sum, name="proof", device_dense=place)
    error = float(tf.reduce_max(tf.abs(summed - expected)))
    seconds = round(time.monotonic() - began, 4)
    on_gpu = "GPU" in summed.device.upper()
    speeds = _speeds(tf, hvd, spec.floors.allreduce_mib << 20) if on_gpu else {}
    device = "GPU" if on_gpu and hvd.nccl_built() else "CPU"
    process = nccl_log.this_process()
    report(MARK, host=host, error=error, ranks=size, seconds=seconds, device=device, process=process, **speeds)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
