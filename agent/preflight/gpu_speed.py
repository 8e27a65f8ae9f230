"""How fast a rank's GPU multiplies matrices, and how fast all ranks add up a tensor.

The product was measured on one H200, 706 to 745 TFLOP/s of the 989 published; the sum between GPUs was not yet.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

EDGE: Final = 8192
"""Of the square matrices: large enough for the tensor cores of today's GPUs, 128 MiB each in half precision."""
PRODUCTS: Final = 20
"""In a row, before the clock is read: a capped clock shows only under load."""
REPEATS: Final = 3


def median_s(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median time of `work`, s, after one turn that is not counted."""
    work()
    return statistics.median(_timed(work) for _ in range(repeats))


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def matmul_tflops(seconds: float, products: int = PRODUCTS, edge: int = EDGE) -> float:
    """Return the rate of `products` products of square matrices that took `seconds`, TFLOP/s."""
    return 2 * edge**3 * products / seconds / 1e12


def bus_gb_s(size: int, ranks: int, seconds: float) -> float:
    """Return the bus bandwidth of an allreduce of `size` bytes, GB/s: what the slowest link carries.

    nccl-tests, doc/PERFORMANCE.md: size / time, times 2 (n - 1) / n.
    """
    return size / seconds * 2 * (ranks - 1) / ranks / 1e9
