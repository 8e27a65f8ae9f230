"""One rank of the proof by Horovod for PyTorch that the nodes of a run can add up a tensor: exact sums, on every rank.

As `agent.preflight.allreduce`, in an environment of the program's own that has PyTorch and no TensorFlow.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from agent.preflight import nccl_log
from agent.preflight.allreduce import ELEMENTS, MARK, join, read_spec, report, speeds
from agent.preflight.torch_allreduce import multiplication


def main(argv: Sequence[str]) -> int:
    """Prove it; the argument is the run's directory."""
    spec = read_spec(argv[0])
    host = join(spec)
    # Neither the runtime nor the type checker has PyTorch, which takes seconds to import: the node is there by then.
    torch: Any = importlib.import_module("torch")
    hvd: Any = importlib.import_module("horovod.torch")
    hvd.init()
    seen = torch.cuda.device_count()
    size = hvd.size()
    # Whole numbers below 2**24 add up exactly in float32, in any order.
    device = f"cuda:{hvd.local_rank() % seen}" if seen else "cpu"
    values = torch.arange(ELEMENTS, dtype=torch.float32, device=device) % 1000
    hvd.allreduce(values, op=hvd.Sum, name="warm-up")
    began = time.monotonic()
    summed = hvd.allreduce(values + float(hvd.rank()), op=hvd.Sum, name="proof")
    error = float((summed - (values * size + size * (size - 1) / 2)).abs().max())
    seconds = round(time.monotonic() - began, 4)
    measured = {}
    if summed.is_cuda:
        numbers = torch.zeros(spec.floors.allreduce_mib << 18, dtype=torch.float32, device=device)

        def add_up() -> None:
            float(hvd.allreduce(numbers, op=hvd.Sum, name="speed")[0])

        measured = speeds(multiplication(torch, device), add_up, numbers.nbytes, size)
    by_nccl = "GPU" if summed.is_cuda and hvd.nccl_built() else "CPU"
    process = nccl_log.this_process()
    report(MARK, host=host, error=error, ranks=size, seconds=seconds, device=by_nccl, process=process, **measured)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # As `agent.preflight.torch_allreduce` does, and for its reason.
