"""Time steps in chunks, and record how much of the process's cores was used meanwhile. Standard library only."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


def write(output: str, take: Callable[[], float], chunks: int, total: Callable[[], float], **facts: Any) -> None:
    """Time steps in chunks, and write the result as JSON to a new file in the directory `output`, with further facts.

    `take` takes the steps of one chunk and returns their median time, s. The first chunk is for warming up, and does
    not count. `total` then returns a number that must be equal on all ranks, such as the sum of the weights. For each
    chunk the file has this time, the use of the process's cores by all processes, and by this process, in cores.
    """
    take()
    found = []
    for _ in range(chunks):
        began, used, own = time.perf_counter(), _used_s(), time.process_time()
        seconds = take()
        wall = time.perf_counter() - began
        found.append([seconds, (_used_s() - used) / wall, (time.process_time() - own) / wall])
    document = {"chunks": found, "cores": sorted(os.sched_getaffinity(0)), "sum": total(), **facts}
    Path(output, f"{os.getpid()}.json").write_text(json.dumps(document))


def median_s(step: Callable[[], Any], count: int) -> float:
    """Return the median time of `count` steps, s."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _used_s() -> float:
    """Return the processor time that all processes used on this process's cores since boot, s, without interrupts."""
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    return sum(sum(map(int, words[1:4])) for words in lines if words[0] in cores) * _TICK_S
