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

from agent.preflight.allreduce import ELEMENTS, MARK, join, report


def main(argv: Sequence[str]) -> int:
    """Prove it; the argument is the run's directory."""
    host = join(argv[0])
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
    report(MARK, host=host, error=error, ranks=size, seconds=round(time.monotonic() - began, 4))
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # As `agent.preflight.torch_allreduce` does, and for its reason.
