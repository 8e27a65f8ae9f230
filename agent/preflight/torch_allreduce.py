"""One rank of the proof by PyTorch that the nodes of a run can add up a tensor, where Horovod does not start the ranks.

Reports as `agent.preflight.allreduce` does. Where the program's environment has no PyTorch it reports that instead, and
ends well: nothing is proved then. On GPUs NCCL adds up, else Gloo.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from agent.hardware.gpus import count_gpu_devices
from agent.preflight import gpu_speed, nccl_log
from agent.preflight.allreduce import ELEMENTS, HERE, MARK, read_spec, report, speeds

WITHOUT: Final = "deepcdk-no-pytorch "
BLIND: Final = "deepcdk-blind-pytorch "
_TIMEOUT_S: Final = 180.0
"""The slowest rank's import of PyTorch fits in it."""


def multiplication(torch: Any, device: str) -> Callable[[], object]:
    """Return what multiplies matrices on a GPU, and waits until it is done."""
    half = torch.rand((gpu_speed.EDGE, gpu_speed.EDGE), device=device).half()

    def multiply() -> None:
        for _ in range(gpu_speed.PRODUCTS):
            product = half @ half
        float(product[0, 0])  # waits for the GPU, which works in order

    return multiply


def main(argv: Sequence[str]) -> int:
    """Prove it on the GPUs that PyTorch sees; the argument is the run's directory."""
    host = os.environ.get("HOROVOD_HOSTNAME", "")
    report(HERE, host=host)
    if importlib.util.find_spec("torch") is None:
        report(WITHOUT, host=host)
        return 0
    # PyTorch comes with the program's own requirements: neither this environment nor the type checker has it.
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    seen, ranks_here = torch.cuda.device_count(), int(os.environ["LOCAL_WORLD_SIZE"])
    spec = read_spec(argv[0])
    if count_gpu_devices() and seen < ranks_here:
        report(BLIND, host=host, seen=seen, ranks=ranks_here)
        if not spec.allow_degraded:
            return 1
    nccl_log.ask_for_it()
    timeout = datetime.timedelta(seconds=_TIMEOUT_S)
    distributed.init_process_group("gloo", timeout=timeout)
    # NCCL takes all ranks or none: where one sees no GPU, all add up on the CPU.
    see = torch.tensor([int(0 < ranks_here <= seen)])
    distributed.all_reduce(see, op=distributed.ReduceOp.MIN)
    on_gpus = bool(see)
    group = distributed.new_group(backend="nccl", timeout=timeout) if on_gpus else None
    device = f"cuda:{os.environ['LOCAL_RANK']}" if on_gpus else "cpu"
    size, rank = distributed.get_world_size(), distributed.get_rank()
    # Whole numbers below 2**24 add up exactly in float32, in any order.
    values = torch.arange(ELEMENTS, dtype=torch.float32, device=device) % 1000
    distributed.all_reduce(values.clone(), group=group)
    began = time.monotonic()
    summed = values + float(rank)
    distributed.all_reduce(summed, group=group)
    error = float((summed - (values * size + size * (size - 1) / 2)).abs().max())
    seconds = round(time.monotonic() - began, 4)
    measured = {}
    if on_gpus:
        numbers = torch.zeros(spec.floors.allreduce_mib << 18, dtype=torch.float32, device=device)

        def add_up() -> None:
            distributed.all_reduce(numbers, group=group)
            float(numbers[0])

        measured = speeds(multiplication(torch, device), add_up, numbers.nbytes, size)
    by_nccl, process = "GPU" if on_gpus else "CPU", nccl_log.this_process()
    report(MARK, host=host, error=error, ranks=size, seconds=seconds, device=by_nccl, process=process, **measured)
    distributed.barrier()
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # Not sys.exit: in the clean-up of its threads PyTorch 2.13 was seen to abort a rank of Gloo on a busy machine
    # ("terminate called without an active exception"), which would refuse nodes that are well.
    os._exit(status)
