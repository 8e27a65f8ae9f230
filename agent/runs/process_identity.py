"""The identity of one process, such as the supervisor of a run, which no later process with its pid has."""

from __future__ import annotations

import dataclasses
import functools
import socket
from pathlib import Path
from typing import Any

from agent.hardware.node_conf import read_node_conf


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """Identify one process beyond the reuse of its pid, a reboot, or a replaced master."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since boot, from /proc/PID/stat."""
    boot_id: str
    host: str
    """The instance's id; elsewhere than on a node, and as earlier versions have it, the name of the host."""

    @classmethod
    def from_document(cls, document: Any) -> ProcessIdentity:
        """Build the identity from JSON values. Raises ValueError where they are not one."""
        wanted = {"pid": int, "start_ticks": int, "boot_id": str, "host": str}
        if not isinstance(document, dict) or {key: type(value) for key, value in document.items()} != wanted:
            raise ValueError("not the identity of a process")
        return cls(**document)

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """Read the identity of a live process on this host."""
        return cls(pid=pid, start_ticks=_start_ticks(pid), boot_id=_boot_id(), host=_names()[0])

    def is_alive(self) -> bool:
        """Return whether this process still runs on this host."""
        if self.boot_id != _boot_id() or self.host not in _names():
            return False
        try:
            return _start_ticks(self.pid) == self.start_ticks
        except (OSError, ValueError, IndexError):
            return False

    @property
    def end_cause(self) -> str:
        """Return what ended it, as far as this host can know; "" where only the process itself is gone."""
        if self.host not in _names():
            return "the master was replaced"
        return "the master was rebooted" if self.boot_id != _boot_id() else ""


@functools.cache
def _names() -> tuple[str, ...]:
    """Return the names of this host, the one that no other has first: a host's own may be that of the one before it."""
    name, instance_id = socket.gethostname(), read_node_conf().get("instance_id")
    return (instance_id, name) if instance_id else (name,)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ValueError(f"process {pid} has ended")
    return int(fields[19])
