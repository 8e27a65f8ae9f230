"""Measurements of this host, as far as its namespaces show them: its processes, its network, its root."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from .api import Datum

_TICKS_S: Final = os.sysconf("SC_CLK_TCK")
_UNITS: Final = {"used_percent": "Percent", "usage_active": "Percent", "bytes_sent": "Bytes", "bytes_recv": "Bytes"}
# Sections without data on a host: it lacks the device or the counter.
NOTHING_HERE: Final = frozenset({"ethtool", "nvidia_gpu", "efa", "diskio", "swap", "netstat", "processes"})
MEASURED: Final = frozenset({"cpu", "mem", "disk", "net"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """Counters at one moment."""

    at_s: float
    cpu_s: float
    """CPU time of all processes of the host, including processes that have exited."""
    memory_bytes: int
    """Anonymous memory of the host's processes."""
    network: Mapping[str, int]
    """Bytes and drops of all interfaces except loopback, since the host's start."""
    disk_percent: float
    inodes_free: int


def take(proc: Path, root: Path, at_s: float) -> Sample:
    """Return the counters of the host at this moment. `proc` and `root` are its /proc and its root directory.

    `at_s` is the time of the sample, in seconds of any clock.
    """
    cpu_s, memory_bytes = 0.0, 0
    for directory in proc.iterdir():
        if directory.name.isdigit():
            cpu_s += _cpu_s(directory)
            memory_bytes += _memory_bytes(directory)
    disk = os.statvfs(root)
    usable = disk.f_blocks - disk.f_bfree + disk.f_bavail
    return Sample(
        at_s=at_s,
        cpu_s=cpu_s,
        memory_bytes=memory_bytes,
        network=read_network((proc / "net/dev").read_text(encoding="utf-8")),
        disk_percent=100 * (disk.f_blocks - disk.f_bfree) / usable if usable else 0.0,
        inodes_free=disk.f_favail,
    )


def _cpu_s(directory: Path) -> float:
    """Return the CPU time of a process and its exited children, or 0 if the process is gone."""
    try:
        fields = (directory / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_S


def _memory_bytes(directory: Path) -> int:
    try:
        text = (directory / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def read_network(text: str) -> dict[str, int]:
    """Parse /proc/net/dev: return bytes and dropped packets of all interfaces except loopback together.

    The keys are bytes_recv, drop_in, bytes_sent and drop_out.
    """
    totals = dict.fromkeys(("bytes_recv", "drop_in", "bytes_sent", "drop_out"), 0)
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        values = rest.split()
        if not colon or name.strip() == "lo" or len(values) < 12:
            continue
        for key, column in (("bytes_recv", 0), ("drop_in", 3), ("bytes_sent", 8), ("drop_out", 11)):
            totals[key] += int(values[column])
    return totals


def figures(before: Sample, now: Sample, *, cpus: int, memory_bytes: int) -> dict[str, dict[str, float]]:
    """Return the metrics from two samples, by section of the configuration and name, such as mem and used_percent.

    Processor and network values are for the time between the samples, all others are those of `now`. `cpus` is the
    machine's number of processors, `memory_bytes` its total memory.
    """
    elapsed_s = max(now.at_s - before.at_s, 1e-3)
    busy = 100 * (now.cpu_s - before.cpu_s) / elapsed_s / cpus
    return {
        "cpu": {"usage_active": min(100.0, max(0.0, busy))},
        "mem": {"used_percent": 100 * now.memory_bytes / memory_bytes},
        "disk": {"used_percent": now.disk_percent, "inodes_free": float(now.inodes_free)},
        "net": {name: float(max(0, now.network[name] - before.network[name])) for name in now.network},
    }


def data(config: Mapping[str, Any], values: Mapping[str, Mapping[str, float]], instance_id: str) -> Iterator[Datum]:
    """Yield the `values` that the configuration selects. Metrics without a value are skipped.

    Each value is sent with all dimensions of its section, unless drop_original_metrics names it. It is also sent with
    each combination in aggregation_dimensions that the section has.
    """
    everywhere = {
        key: value.replace("${aws:InstanceId}", instance_id)
        for key, value in config.get("append_dimensions", {}).items()
    }
    for section, asked in config["metrics_collected"].items():
        dimensions = {**everywhere, **asked.get("append_dimensions", {})}
        for name in asked.get("measurement", ()):
            if name not in values.get(section, {}):
                continue
            unit = _UNITS.get(name, "None")
            wanted = [each for each in config.get("aggregation_dimensions", []) if set(each) <= set(dimensions)]
            if name not in asked.get("drop_original_metrics", ()):
                wanted.append(list(dimensions))
            for keys in wanted:
                chosen = {key: dimensions[key] for key in keys}
                yield Datum(name=f"{section}_{name}", dimensions=chosen, values=[values[section][name]], unit=unit)
