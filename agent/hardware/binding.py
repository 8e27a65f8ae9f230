"""Bind this process to its placement, before TensorFlow starts the threads that inherit it. Standard library only."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.hardware.placement import Placement

THREADS: Final = Path("/proc/self/task")
MPOL_PREFERRED: Final = 1
"""Take memory from this node first, and from others when it is full, so that it never ends a run."""
SET_MEMPOLICY: Final = {"x86_64": 238, "aarch64": 237}
"""Numbers of the system call: the C library has no function for it, and libnuma is seldom installed."""
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"


def bind(placement: Placement) -> tuple[str, ...]:
    """Bind all threads of this process to the CPUs, and its memory to the node; return the refusals.

    A sandbox may forbid either; the run then continues, only slower.
    """
    refused = []
    try:
        for thread in THREADS.iterdir():
            os.sched_setaffinity(int(thread.name), placement.cpus)
    except OSError as error:
        refused.append(f"binding to CPUs refused: {error.strerror}")
    if placement.node is not None and (reason := prefer_node(placement.node)):
        refused.append(f"binding to memory node {placement.node} refused: {reason}")
    return tuple(refused)


def prefer_node(node: int) -> str | None:
    """Take memory from a node first, in this thread and those it starts; return the reason of a failure, or None."""
    number = SET_MEMPOLICY.get(platform.machine())
    if number is None:
        return f"the number of set_mempolicy on {platform.machine()} is not known"
    bits = 64 * (node // 64 + 1)
    mask = (ctypes.c_ulong * (bits // 64))()
    mask[node // 64] = 1 << node % 64
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than the given number.
    if libc.syscall(ctypes.c_long(number), ctypes.c_int(MPOL_PREFERRED), mask, ctypes.c_ulong(bits + 1)):
        return os.strerror(ctypes.get_errno())
    return None


def gpu_variables(placement: Placement, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that show CUDA this rank's GPU alone; none where the user has set them.

    Seen with one GPU, not with several.
    """
    if placement.gpu is None or VISIBLE in environ:
        return {}
    return {ORDER: "PCI_BUS_ID", VISIBLE: str(placement.gpu.index)}
