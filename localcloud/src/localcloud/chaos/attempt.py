"""One attempt at a fault: what it may meet, how it chooses, and what comes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from localcloud.chaos.schedule import Fault
from localcloud.errors import LocalCloudError

NOTICE_S: Final = 120.0
"""From the notice of an interruption to the end of the instance, as AWS has it."""
T = TypeVar("T")
Host = Mapping[str, Any]
"""A host, as `status` describes it."""


class NoTargetError(LocalCloudError, LookupError):
    """Report a fault for which there is nothing at the moment."""


class Scene(Protocol):
    """The cloud that faults are done to, as `localcloud.chaos.runner.Cloud` has it."""

    def hosts(self, only: str = "") -> list[dict[str, Any]]:
        """Return the hosts that a fault may meet, as `status` describes them.

        `only`: a regular expression of their names and ids, in place of that which all faults share.
        """

    def all_hosts(self) -> list[dict[str, Any]]:
        """Return the cloud's hosts."""

    def ask(self, message: dict[str, str]) -> None:
        """Send a request to the cloud's daemon. Raises LocalCloudError."""

    def call(self, operation: str, instance_id: str) -> None:
        """Call an operation of EC2 for one instance, from the laptop. Raises LocalCloudError."""

    def shared_file_system(self) -> Path:
        """Return where the shared file systems are, as this process can read and write them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patterns:
    """What the cloud does not know of the programs on its hosts, and what the user wants of faults."""

    supervisor: str = ""
    """Regular expression of a command line."""
    flip: str = ""
    """Pattern of files, as of pathlib, below the shared file systems."""
    writing: str = ""
    """Pattern likewise: of what is there while a program writes, as a checkpoint under another name."""
    notice_s: float = NOTICE_S
    """From the notice of an interruption to the end of the instance."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """A fault that was carried out."""

    what: str
    target: str = ""
    """What it was done to: the same fault is not done to it again while it lasts."""
    undo: Callable[[], None] | None = None
    """Ends a fault that lasts; does nothing where what it was done to is gone. Raises LocalCloudError or OSError."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One fault, the cloud that it is for, and what faults of its kind still last on."""

    scene: Scene
    fault: Fault
    patterns: Patterns
    busy: Collection[str] = ()
    """Targets of faults of this kind that last."""

    def choose(self, things: Sequence[T], what: str) -> T:
        """Return the thing at the fault's place. Raises NoTargetError where there is none."""
        if not things:
            raise NoTargetError(f"there is no {what}{' on which it does not last already' if self.busy else ''}")
        return things[int(self.fault.place * len(things))]

    def hosts(self) -> list[dict[str, Any]]:
        """Return the hosts that run, and that no fault of this kind lasts on."""
        return [host for host in self.running() if host["instance_id"] not in self.busy]

    def running(self) -> list[dict[str, Any]]:
        """Return the hosts that run."""
        return [host for host in self.scene.hosts(self.fault.hosts) if host["pid"]]

    def host(self) -> Host:
        """Return the host to meet. Raises NoTargetError where there is none."""
        return self.choose(self.hosts(), "host")

    def once(self, target: str) -> str:
        """Return a target of which there is one. Raises NoTargetError while a fault of this kind lasts on it."""
        if target in self.busy:
            raise NoTargetError(f"it still lasts on the {target}")
        return target


def named(host: Host) -> str:
    """Return a host in words."""
    return f"{host['name'] or host['hostname']} ({host['instance_id']})"
