"""A fake cloud with given hosts for faults, and a host that consists only of namespaces."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from localcloud.chaos.attempt import Attempt, Cloud, Done, Patterns
from localcloud.chaos.faults import carry_out
from localcloud.chaos.processes import processes_of, ranks_of
from localcloud.chaos.schedule import LASTING, Fault
from waiting import eventually

_HOST: Final = r"""
ip link set lo up; ip link add eth0 type veth peer name far
ip addr add 10.99.0.1/24 dev eth0; ip link set eth0 up; ip link set far up; ip route add default via 10.99.0.2
HOROVOD_RANK=0 sleep 601 & HOROVOD_RANK=1 sleep 602 & exec sleep 603
"""


class Stage(Cloud):
    """A fake cloud with given hosts, which records its requests."""

    def __init__(self, root: Path, *pids: int, spot: bool = False) -> None:
        self.root, self.asked = root, list[Any]()
        self._hosts = [
            {"name": f"w{n}", "instance_id": f"i-{n}", "pid": pid, "spot": spot, "agent": ""}
            for n, pid in enumerate(pids, 1)
        ]

    def hosts(self, only: str = "") -> list[dict[str, Any]]:
        return [host for host in self._hosts if re.search(only, str(host["name"]))]

    def all_hosts(self) -> list[dict[str, Any]]:
        return self._hosts

    def ask(self, message: dict[str, str]) -> dict[str, Any]:
        self.asked.append(message)
        return {}

    def call(self, operation: str, instance_id: str) -> None:
        self.asked.append((operation, instance_id))

    def shared_file_system(self) -> Path:
        return self.root


def fault(kind: str, place: float = 0.0) -> Fault:
    return Fault(at_s=0.0, kind=kind, place=place, lasts_s=5.0 if kind in LASTING else 0.0)


def carried_out(stage: Stage, kind: str, place: float = 0.0, /, *busy: str, **patterns: Any) -> Done:
    """Inject one fault, while others of its kind are active on `busy`."""
    return carry_out(
        Attempt(cloud=stage, fault=fault(kind, place), patterns=Patterns(**patterns), busy=frozenset(busy))
    )


def done(stage: Stage, kind: str, place: float = 0.0, /, **patterns: str) -> str:
    return carried_out(stage, kind, place, **patterns).what


def inside(host: int, *words: str) -> str:
    """Run a command in the network of a host; return its output."""
    return subprocess.run(
        ["nsenter", "--target", str(host), "--net", *words], capture_output=True, text=True, check=True
    ).stdout


@contextmanager
def started_host() -> Iterator[int]:
    """Start a process in new network and PID namespaces; return the pid of process 1 in them."""
    words = ["unshare", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", _HOST]
    with subprocess.Popen(words) as outer:
        try:
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
            pid = int(eventually(lambda: children.read_text().split())[0])
            eventually(lambda: len(ranks_of(processes_of(pid))) == 2)
            yield pid
        finally:
            outer.kill()
