"""The identity of one process, such as the supervisor of a run, which no later process with its pid has."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import socket
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import write_atomically
from agent.hardware.machine import read_node_conf

BOOTS: Final = ".deepcdk/boots"
"""Below the login user's home on the node's own disk: the ids of its boots, one a line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """Identify one process beyond the reuse of its pid, a reboot, or a replaced master."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since boot, from /proc/PID/stat."""
    boot_id: str
    host: str

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
        _note_boot()
        return cls(pid=pid, start_ticks=_start_ticks(pid), boot_id=_boot_id(), host=socket.gethostname())

    def is_alive(self) -> bool:
        """Return whether this process still runs on this host."""
        if self.boot_id != _boot_id() or self.host != socket.gethostname():
            return False
        try:
            return _start_ticks(self.pid) == self.start_ticks
        except (OSError, ValueError, IndexError):
            return False

    @property
    def end_cause(self) -> str:
        """Return what ended it, as far as this host can know; "" where only the process itself is gone."""
        if self.host == socket.gethostname() and self.boot_id == _boot_id():
            return ""
        _note_boot()
        # A master may have the name and address of the one that it replaces.
        known = _own_boots()
        is_another = self.host != socket.gethostname() or (known and self.boot_id not in known)
        return "the master was replaced" if is_another else "the master was rebooted"


def _own_boots() -> list[str]:
    """Return the boots of this node, by their ids; [] where none has been noted."""
    try:
        return (Path.home() / BOOTS).read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []


@functools.cache
def _note_boot() -> None:
    """Note on this node's own disk that this boot is one of its own."""
    boots, boot = _own_boots(), _boot_id()
    if boot in boots or not read_node_conf():
        return
    with contextlib.suppress(OSError):  # It only tells a reboot from a replacement.
        (Path.home() / BOOTS).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path.home() / BOOTS, "".join(f"{each}\n" for each in [*boots, boot]))


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ValueError(f"process {pid} has ended")
    return int(fields[19])
