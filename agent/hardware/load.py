"""Measure a node's load: `python3 -m agent.hardware.load` prints one line of JSON. Standard library only.

Processor and network load are measured over one second, from the kernel's counters. GPU load comes from nvidia-smi.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.errors import describe, malformed
from agent.hardware import gpus
from agent.hardware.gpus import GpuLoad
from agent.spec import untrusted_json

MEASURED_S: Final = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counters:
    """The kernel's counters at one moment."""

    busy: int
    """Used processor time of all cores, in ticks."""
    total: int
    """Used and idle processor time of all cores, in ticks."""
    received: int
    """Bytes received by all interfaces except the loopback."""
    sent: int
    """Bytes sent by the same interfaces."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """A node's load."""

    processor: float
    """Used share of all cores' time, 0 to 1."""
    cores: int
    memory_used: int
    """Bytes that are not available to other programs."""
    memory_total: int
    received_per_s: float
    """Bytes per second."""
    sent_per_s: float
    """Bytes per second."""
    disk_used: int
    """Bytes of the root file system."""
    disk_total: int
    gpus: tuple[GpuLoad, ...]

    def __post_init__(self) -> None:
        parts: tuple[Load | GpuLoad, ...] = (self, *self.gpus)
        for part in parts:
            for field in dataclasses.fields(part):
                value, kind = getattr(part, field.name), str(field.type)
                if kind in _NUMBERS and not _is_number(value) and (value is not None or "None" not in kind):
                    raise ValueError(f"invalid load of a node: {field.name} = {value!a} must be a number")

    @classmethod
    def from_json(cls, text: str) -> Load:
        """Parse the JSON line that a node printed. Raises ValueError if the text is not such a line."""
        try:
            document = untrusted_json.parse(text)
            return cls(**document | {"gpus": tuple(GpuLoad(**gpu) for gpu in document["gpus"])})
        except (TypeError, AttributeError, KeyError, json.JSONDecodeError) as error:
            raise ValueError(f"invalid load of a node: {malformed(error)}") from None


_NUMBERS: Final = ("int", "float", "int | None", "float | None")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def parse_counters(stat: str, net_dev: str) -> Counters:
    """Parse the contents of /proc/stat and /proc/net/dev. Raises ValueError if one of them is malformed."""
    first = stat.split("\n", 1)[0].split()
    if not first or first[0] != "cpu" or len(first) < 6:
        raise ValueError(f"/proc/stat: its first line must be `cpu` and at least five numbers, not {' '.join(first)!a}")
    ticks = [int(word) for word in first[1:9]]  # user time already includes the guest times after these
    received = sent = 0
    for line in net_dev.splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            words = numbers.split()
            if len(words) < 9:
                raise ValueError(f"/proc/net/dev: a line must have at least nine numbers, unlike {line!a}")
            received, sent = received + int(words[0]), sent + int(words[8])
    idle = ticks[3] + ticks[4]
    return Counters(busy=sum(ticks) - idle, total=sum(ticks), received=received, sent=sent)


def parse_memory(meminfo: str) -> tuple[int, int]:
    """Parse /proc/meminfo into used and total bytes. Raises ValueError if either is missing."""
    values = {line.partition(":")[0]: line.partition(":")[2].split() for line in meminfo.splitlines()}
    try:
        total, available = (int(values[key][0]) * 1024 for key in ("MemTotal", "MemAvailable"))
    except (KeyError, IndexError):
        raise ValueError("/proc/meminfo lacks MemTotal or MemAvailable") from None
    return total - available, total


def measure(proc: Path, root: Path, sleep: Callable[[float], None] = time.sleep) -> Load:
    """Measure this node's load over MEASURED_S. `sleep` waits between the two readings of the counters.

    `proc` is the directory /proc, and `root` is on the disk to report. Raises OSError or ValueError.
    """
    before, began = _counters(proc), time.monotonic()
    sleep(MEASURED_S)
    after, seconds = _counters(proc), max(time.monotonic() - began, 1e-6)
    memory_used, memory_total = parse_memory((proc / "meminfo").read_text())
    disk = shutil.disk_usage(root)
    return Load(
        processor=(after.busy - before.busy) / max(1, after.total - before.total),
        cores=sum(line[:3] == "cpu" and line[3:4].isdecimal() for line in (proc / "stat").read_text().splitlines()),
        memory_used=memory_used,
        memory_total=memory_total,
        received_per_s=(after.received - before.received) / seconds,
        sent_per_s=(after.sent - before.sent) / seconds,
        disk_used=disk.used,
        disk_total=disk.total,
        gpus=gpus.read_load(),
    )


def _counters(proc: Path) -> Counters:
    return parse_counters((proc / "stat").read_text(), (proc / "net/dev").read_text())


def main() -> int:
    """Print this node's load as JSON, or an error to stderr; return the exit status, 0 or 1."""
    try:
        load = measure(Path("/proc"), Path("/"))
    except (OSError, ValueError) as error:
        print(describe(error), file=sys.stderr)
        return 1
    print(json.dumps(dataclasses.asdict(load)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
