"""Describe the machine that figures are measured on: processor, cores, memory, load. Standard library only."""

from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path
from typing import Final

PROCESSORS: Final = Path("/proc/cpuinfo")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine at one moment."""

    processor: str
    cores: int
    """Logical cores that this process may use."""
    memory_gib: float
    load: float
    """Processes that ran or waited, mean of the last minute: what else the machine was doing."""

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores, {self.memory_gib:.0f} GiB, load {self.load:.2f} at the start"


def this_machine() -> Machine:
    """Read this machine's facts from the kernel."""
    text = PROCESSORS.read_text() if PROCESSORS.exists() else ""
    return Machine(
        processor=processor_name(text) or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        load=os.getloadavg()[0],
    )


def processor_name(cpuinfo: str) -> str | None:
    """Return the model of the first processor of /proc/cpuinfo; None where it has none, as on ARM."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return None


def vector_bits(cpuinfo: str) -> int:
    """Return the width of the first processor's vectors by the flags of /proc/cpuinfo; 128 where it names none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            flags = value.split()
            return 512 if "avx512f" in flags else 256 if "avx2" in flags else 128
    return 128


def this_vector_bits() -> int:
    """Return the width of this machine's vectors."""
    return vector_bits(PROCESSORS.read_text() if PROCESSORS.exists() else "")
