"""Measurements of hosts: processor time of all their processes, and traffic of their network card."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from localcloud.snapshot import HostLoad, Instance

MINUTE_S: Final = 60.0
GROUP_TAG: Final = "aws:autoscaling:groupName"
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """The counters of a host, as totals since its start."""

    cpu_s: float
    received_bytes: int
    sent_bytes: int


def parse_stat(text: str) -> float:
    """Return the processor time, in seconds, of a process and its reaped children, from /proc/PID/stat."""
    # The name in parentheses may contain anything. utime, stime, cutime and cstime are the fields 14 to 17.
    fields = text.rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICKS_PER_S


def parse_network(text: str, card: str = "eth0") -> tuple[int, int]:
    """Return bytes received and sent by a network card, from /proc/PID/net/dev, or zeros if it is missing."""
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() == card:
            fields = rest.split()
            return int(fields[0]), int(fields[8])
    return 0, 0


def read(inits: Mapping[str, int], proc: Path = Path("/proc")) -> dict[str, Reading]:
    """Return the counters of hosts by id. Hosts that exit meanwhile are omitted.

    `inits`: the pid of each host's first process, by the host's id.
    """
    spaces: dict[int, str] = {}
    network: dict[str, tuple[int, int]] = {}
    for id, pid in inits.items():
        try:
            spaces[(proc / str(pid) / "ns/pid").stat().st_ino] = id
            network[id] = parse_network((proc / str(pid) / "net/dev").read_text())
        except OSError:
            continue
    cpu_s = dict.fromkeys(network, 0.0)
    for entry in proc.iterdir() if spaces else ():
        if entry.name.isdigit():
            try:
                owner = spaces.get((entry / "ns/pid").stat().st_ino)
                if owner in cpu_s:
                    cpu_s[owner] += parse_stat((entry / "stat").read_text())
            except (OSError, ValueError):
                continue
    return {id: Reading(cpu_s=cpu_s[id], received_bytes=i, sent_bytes=o) for id, (i, o) in network.items()}


def load(
    instance: Instance, before: Reading, after: Reading, *, elapsed_s: float, fair_cores: float, speed: float
) -> HostLoad:
    """Return a host's load between two readings.

    Its processor time is relative to `fair_cores`, its share of the machine if all hosts are busy, because the machine
    has fewer cores than the instance types promise. `speed` minutes of metrics pass in one minute, so each byte counts
    `speed` times.
    """
    used = max(0.0, after.cpu_s - before.cpu_s) / (elapsed_s * fair_cores)
    return HostLoad(
        instance_id=instance.id,
        group=dict(instance.tags).get(GROUP_TAG, ""),
        cpu_percent=min(100.0, 100.0 * used),
        received_bytes=max(0, after.received_bytes - before.received_bytes) * speed,
        sent_bytes=max(0, after.sent_bytes - before.sent_bytes) * speed,
    )


class Meter:
    """Measures all hosts. Call `measure` when `due` is True: once a minute, or `speed` times as often."""

    def __init__(self, speed: float, clock: Callable[[], float] = time.monotonic, *, cpus: float = 0.0) -> None:
        """Take `cpus`, the processor time of each host in processors, or 0 for a fair share of the machine."""
        self._speed, self._clock, self._cpus = speed, clock, cpus
        self._last = clock()
        self._readings: dict[str, Reading] = {}

    @property
    def due(self) -> bool:
        """Return whether a minute of the metrics has passed."""
        return self._clock() - self._last >= MINUTE_S / self._speed

    def measure(self, hosts: Iterable[tuple[Instance, int]]) -> list[HostLoad]:
        """Measure all hosts, and return each host's load since the previous measurement.

        A host without a previous measurement, or that is not running, is omitted.
        `hosts`: each instance with the pid of its host's first process (0: not running).
        """
        now = self._clock()
        elapsed_s, self._last = max(now - self._last, 1e-3), now
        instances = {instance.id: (instance, pid) for instance, pid in hosts if pid}
        readings = read({id: pid for id, (_, pid) in instances.items()})
        fair_cores = self._cpus or min(1.0, (os.cpu_count() or 1) / max(1, len(readings)))
        loads = [
            load(
                instances[id][0],
                self._readings[id],
                reading,
                elapsed_s=elapsed_s,
                fair_cores=fair_cores,
                speed=self._speed,
            )
            for id, reading in readings.items()
            if id in self._readings
        ]
        self._readings = readings
        return loads
