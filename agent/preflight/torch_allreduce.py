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
from collections.abc import Sequence
from typing import Any, Final

from agent.hardware.gpus import count_gpu_devices
from agent.preflight.allreduce import ELEMENTS, HERE, MARK, report

WITHOUT: Final = "deepcdk-no-pytorch "
BLIND: Final = "deepcdk-blind-pytorch "
_TIMEOUT_S: Final = 180.0
"""The slowest rank's import of PyTorch fits in it."""


def main(argv: Sequence[str]) -> int:
    """Prove it; return 1 where PyTorch sees fewer GPUs than the node has ranks."""
    host = os.environ.get("HOROVOD_HOSTNAME", "")
    report(HERE, host=host)
    if importlib.util.find_spec("torch") is None:
        report(WITHOUT, host=host)
        return 0
    # PyTorch comes with the program's own requirements: neither this environment nor the type checker has it.
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    seen, ranks_here = torch.cuda.device_count(), int(os.environ["LOCAL_WORLD_SIZE"])
    if count_gpu_devices() and seen < ranks_here:
        report(BLIND, host=host, seen=seen, ranks=ranks_here)
        return 1
    device = f"cuda:{os.environ['LOCAL_RANK']}" if seen else "cpu"
    distributed.init_process_group("nccl" if seen else "gloo", timeout=datetime.timedelta(seconds=_TIMEOUT_S))
    size, rank = distributed.get_world_size(), distributed.get_rank()
    # Whole numbers below 2**24 add up exactly in float32, in any order.
    values = torch.arange(ELEMENTS, dtype=torch.float32, device=device) % 1000
    distributed.all_reduce(values.clone())
    began = time.monotonic()
    summed = values + float(rank)
    distributed.all_reduce(summed)
    error = float((summed - (values * size + size * (size - 1) / 2)).abs().max())
    report(MARK, host=host, error=error, ranks=size, seconds=round(time.monotonic() - began, 4))
    distributed.barrier()
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # Not sys.exit: in the clean-up of its threads PyTorch 2.13 was seen to abort a rank of Gloo on a busy machine
    # ("terminate called without an active exception"), which would refuse nodes that are well.
    os._exit(status)
