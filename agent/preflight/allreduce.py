"""One rank of the pre-flight's allreduce, which must give exact sums on every rank.

    python -m agent.preflight.allreduce RUN_DIRECTORY horovod.tensorflow|horovod.torch|torch

The pre-flight starts it like the run itself, on the same hosts with the same slots. Each rank reports when it has
started and when it has finished, so that failing nodes can be named. On GPUs it also measures a matrix product and an
allreduce. `torch` is for ranks that Horovod does not start. If the program's environment has no PyTorch, these ranks
report that instead, and the allreduce is not tested.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import gc
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from agent.hardware.gpus import count_gpu_devices
from agent.launch.rank import environment, interface_of
from agent.preflight import nccl_log
from agent.spec import untrusted_json
from agent.spec.run import RunSpec

EDGE: Final = 8192
"""Size of the square matrices: large enough for the tensor cores of today's GPUs, 128 MiB each in half precision."""
PRODUCTS: Final = 20
"""Number of products per measurement. A capped clock only shows under load."""
REPEATS: Final = 3


def median_s(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median duration of `work`, s, after one warm-up call."""
    work()
    import statistics  # Not at the top: the supervisor imports this module too.

    return statistics.median(_timed(work) for _ in range(repeats))


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def matmul_tflops(seconds: float, products: int = PRODUCTS, edge: int = EDGE) -> float:
    """Return the rate of `products` products of square matrices of size `edge`, which took `seconds`, in TFLOP/s."""
    return 2 * edge**3 * products / seconds / 1e12


def bus_gb_s(size: int, ranks: int, seconds: float) -> float:
    """Return the bus bandwidth in GB/s of an allreduce of `size` bytes that took `seconds`.

    It is the rate of the slowest link (nccl-tests, doc/PERFORMANCE.md): size / time, times 2 (n - 1) / n for n ranks.
    """
    return size / seconds * 2 * (ranks - 1) / ranks / 1e9


MARK: Final = "deepcdk-allreduce "
HERE: Final = "deepcdk-here "
WITHOUT: Final = "deepcdk-no-pytorch "
BLIND: Final = "deepcdk-blind-pytorch "
HOROVOD_TENSORFLOW: Final = "horovod.tensorflow"
HOROVOD_TORCH: Final = "horovod.torch"
TORCH: Final = "torch"
ELEMENTS: Final = 1_000_000
"""4 MB of float32: enough to avoid the algorithms for small tensors."""
SPEED: Final = "speed"
"""Name of the allreduce that is timed."""
GPU: Final = "/GPU:0"
"""Device for the sum on ranks with a GPU. Outside of a `tf.function`, Horovod uses the CPU unless a device is given."""
_TIMEOUT_S: Final = 180.0
"""Time-out of PyTorch's collectives. It includes the slowest rank's import of PyTorch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework on a rank that has joined the other ranks, with the operations for the test."""

    rank: int
    size: int
    numbers: Callable[[int], Any]
    """Returns a tensor with this many float32 numbers: 0 to 999, repeated."""
    add_up: Callable[[Any, str], Any]
    """Returns the sum of all ranks' tensors with this name."""
    largest: Callable[[Any], float]
    """Returns the largest absolute value in a tensor."""
    is_on_gpu: Callable[[Any], bool]
    multiply: Callable[[], object]
    """Multiplies matrices on the GPU, and waits for the result."""
    has_nccl: bool
    leave: Callable[[], object]


MAX_REPORT: Final = 1 << 14
"""Maximum characters of a report."""


def report(mark: str, **values: object) -> None:
    """Print a line with JSON after a mark, for the pre-flight to read."""
    print(mark + json.dumps(values), flush=True)


def marked(output: str, mark: str) -> list[dict[str, Any]]:
    """Return the reports with this mark in the ranks' output. Horovod's launcher puts the rank before each line.

    Lines that are not a JSON object with the text `host` are skipped.
    """
    found = []
    for line in output.splitlines():
        if mark in line:
            try:
                document = untrusted_json.parse(line.partition(mark)[2][:MAX_REPORT])
            except ValueError:
                continue  # Two ranks' lines are mixed, or the line is another program's.
            if isinstance(document, dict) and isinstance(document.get("host"), str):
                found.append(document)
    return found


def announce(spec: RunSpec) -> str:
    """Print a report that this rank has started, and change this process's environment to that of the run's ranks.

    Return the name of this host. NCCL will log to standard output.
    """
    host = os.environ.get("HOROVOD_HOSTNAME", "")
    report(HERE, host=host)
    os.environ.update(environment(spec, os.environ, sys.executable, interface_of(spec, host)))
    nccl_log.log_to_stdout()
    return host


def speeds(multiply: Callable[[], object], add_up: Callable[[], object], size: int, ranks: int) -> dict[str, float]:
    """Time the matrix products and the allreduce of `size` bytes; return the results by name for the report.

    They are `matmul_tflops`, and `bus_gb_s` with several ranks.
    """
    measured = {"matmul_tflops": matmul_tflops(median_s(multiply))}
    if ranks > 1:
        measured["bus_gb_s"] = bus_gb_s(size, ranks, median_s(add_up))
    return {name: float(f"{value:.4g}") for name, value in measured.items()}


def tensorflow() -> Framework:
    """Join the other ranks with Horovod for TensorFlow; return the operations for the test.

    On a node with GPUs, they use one GPU, chosen by the local rank.
    """
    # TensorFlow is imported late, because it reads its environment variables at import.
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")

    @functools.cache  # made in the first product, which is not timed
    def matrix() -> Any:
        single = tf.random.stateless_uniform((EDGE, EDGE), (0, 1), dtype=tf.float32)
        return tf.cast(single, tf.float16)

    def multiply() -> None:
        for _ in range(PRODUCTS):
            product = tf.linalg.matmul(matrix(), matrix())
        float(product[0, 0])  # waits for the GPU, which executes in order

    return Framework(
        rank=hvd.rank(),
        size=hvd.size(),
        numbers=lambda count: tf.cast(tf.math.floormod(tf.range(count), 1000), tf.float32),
        add_up=lambda tensor, name: hvd.allreduce(tensor, op=hvd.Sum, name=name, device_dense=GPU if gpus else ""),
        largest=lambda tensor: float(tf.reduce_max(tf.abs(tensor))),
        is_on_gpu=lambda tensor: "GPU" in tensor.device.upper(),
        multiply=multiply,
        has_nccl=bool(hvd.nccl_built()),
        leave=hvd.shutdown,
    )


def horovod_torch() -> Framework:
    """Join the other ranks with Horovod for PyTorch; return the operations for the test.

    On a node with GPUs, they use one GPU, chosen by the local rank.
    """
    torch, hvd = importlib.import_module("torch"), importlib.import_module("horovod.torch")
    hvd.init()
    seen = torch.cuda.device_count()
    return _of_torch(
        device=f"cuda:{hvd.local_rank() % seen}" if seen else "cpu",
        rank=hvd.rank(),
        size=hvd.size(),
        add_up=lambda tensor, name: hvd.allreduce(tensor, op=hvd.Sum, name=name),
        has_nccl=bool(hvd.nccl_built()),
        leave=hvd.shutdown,
    )


def torch_alone(ranks_here: int) -> Framework:
    """Join the other ranks with PyTorch; return the operations for the test.

    They use NCCL if every rank has a GPU, else Gloo. `ranks_here` is the number of ranks on this host.
    """
    torch, distributed = importlib.import_module("torch"), importlib.import_module("torch.distributed")
    timeout = datetime.timedelta(seconds=_TIMEOUT_S)
    distributed.init_process_group("gloo", timeout=timeout)
    # NCCL needs all ranks. If one rank has no GPU, all ranks add up on the CPU.
    see = torch.tensor([int(0 < ranks_here <= torch.cuda.device_count())])
    distributed.all_reduce(see, op=distributed.ReduceOp.MIN)
    group = distributed.new_group(backend="nccl", timeout=timeout) if see else None

    def add_up(tensor: Any, name: str) -> Any:
        summed = tensor if name == SPEED else tensor.clone()  # the time of a copy must not count
        distributed.all_reduce(summed, group=group)
        return summed

    return _of_torch(
        device=f"cuda:{os.environ['LOCAL_RANK']}" if see else "cpu",
        rank=distributed.get_rank(),
        size=distributed.get_world_size(),
        add_up=add_up,
        has_nccl=True,
        leave=distributed.barrier,
    )


def _of_torch(*, device: str, **joined: Any) -> Framework:
    torch: Any = importlib.import_module("torch")

    @functools.cache  # made in the first product, which is not timed
    def matrix() -> Any:
        return torch.rand((EDGE, EDGE), device=device).half()

    def multiply() -> None:
        for _ in range(PRODUCTS):
            product = matrix() @ matrix()
        float(product[0, 0])  # waits for the GPU, which executes in order

    return Framework(
        numbers=lambda count: torch.arange(count, dtype=torch.float32, device=device) % 1000,
        largest=lambda tensor: float(tensor.abs().max()),
        is_on_gpu=lambda tensor: bool(tensor.is_cuda),
        multiply=multiply,
        **joined,
    )


def prove(joined: Framework, host: str, allreduce_mib: int) -> None:
    """Run an allreduce over all ranks, and print a report with its error, its duration and the device.

    On GPUs, also measure speeds. `joined` are the operations, and this rank leaves the other ranks at the end. `host`
    is the name of this rank's host. `allreduce_mib` is the size of the timed allreduce, MiB.
    """
    size = joined.size
    # Whole numbers below 2**24 add up exactly in float32, in any order.
    values = joined.numbers(ELEMENTS)
    joined.add_up(values, "warm-up")
    began = time.monotonic()
    summed = joined.add_up(values + float(joined.rank), "proof")
    error = joined.largest(summed - (values * size + size * (size - 1) / 2))
    seconds = round(time.monotonic() - began, 4)
    on_gpu, measured = joined.is_on_gpu(summed), {}
    if on_gpu:
        numbers = joined.numbers(allreduce_mib << 18)
        measured = speeds(joined.multiply, lambda: float(joined.add_up(numbers, SPEED)[0]), allreduce_mib << 20, size)
    device, process = "GPU" if on_gpu and joined.has_nccl else "CPU", nccl_log.this_process()
    report(MARK, host=host, error=error, ranks=size, seconds=seconds, device=device, process=process, **measured)
    joined.leave()


def prove_by_torch(spec: RunSpec) -> int:
    """Test the allreduce without Horovod, on the GPUs that PyTorch sees, and print a report (`prove`); return the exit
    status, which is 0 also for wrong sums.

    Without PyTorch, this is reported instead, and the status is 0. If PyTorch sees too few GPUs, this is reported too.
    Unless the run has --allow-degraded, the status is then 1, and nothing is tested.
    """
    host = announce(spec)
    if importlib.util.find_spec("torch") is None:
        report(WITHOUT, host=host)
        return 0
    seen = importlib.import_module("torch").cuda.device_count()
    ranks_here = int(os.environ["LOCAL_WORLD_SIZE"])
    if count_gpu_devices() and seen < ranks_here:
        report(BLIND, host=host, seen=seen, ranks=ranks_here)
        if not spec.allow_degraded:
            return 1
    prove(torch_alone(ranks_here), host, spec.floors.allreduce_mib)
    return 0


def main(argv: Sequence[str]) -> int:
    """Test the allreduce on this rank; return the exit status. The arguments are the run's directory and the framework.

    The framework is HOROVOD_TENSORFLOW, TORCH, or HOROVOD_TORCH.
    """
    gc.disable()  # A fifth of the time of importing TensorFlow, and this process ends soon.
    spec = RunSpec.read(argv[0])
    if argv[1] == TORCH:
        return prove_by_torch(spec)
    host = announce(spec)
    prove(tensorflow() if argv[1] == HOROVOD_TENSORFLOW else horovod_torch(), host, spec.floors.allreduce_mib)
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    if sys.argv[2] != HOROVOD_TENSORFLOW:
        # Not sys.exit: on a busy machine, PyTorch 2.13 aborted a Gloo rank while it cleaned up its threads
        # ("terminate called without an active exception"). That would reject healthy nodes.
        os._exit(status)
    sys.exit(status)
