"""One attempt at a fault: the cloud, how the fault chooses its target, and its result."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from localcloud import control, lifecycle
from localcloud.chaos.schedule import Fault
from localcloud.errors import LocalCloudError, NotRunningError
from localcloud.laptop import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from localcloud.layout import Layout
from localcloud.network.namespaces import enter_path

NOTICE_S: Final = 120.0
"""From the notice of an interruption to the end of the instance, as AWS has it."""
T = TypeVar("T")
Host = Mapping[str, Any]
"""A host, as `status` describes it."""


class NoTargetError(LocalCloudError, LookupError):
    """Report a fault for which there is nothing at the moment."""


class ReplacedError(NotRunningError):
    """Report that a cloud has ended, and that another of its name was started."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.args = (f"the embedded cloud {name} that the faults were for has ended; another of its name was started",)


class Cloud:
    """A cloud that runs, reached as its own command line reaches it."""

    def __init__(self, layout: Layout, only: str = "") -> None:
        """Meet hosts whose name or id `only` matches, a regular expression. Raises NotRunningError."""
        self._layout, self._only = layout, only
        self._state = lifecycle.read_state(layout)

    def hosts(self, only: str = "") -> list[dict[str, Any]]:
        """Return the hosts that a fault may meet, by name and address.

        `only`: a regular expression of their names and ids, in place of the one that all faults share.
        """
        only = only or self._only
        found = [host for host in self.all_hosts() if re.search(only, f"{host['name']} {host['instance_id']}")]
        return sorted(found, key=lambda host: (host["name"], ipaddress.ip_address(host["private_ip"])))

    def all_hosts(self) -> list[dict[str, Any]]:
        """Return the cloud's hosts. Raises NotRunningError, LocalCloudError if it does not answer."""
        hosts: list[dict[str, Any]] = self.ask({"do": "status"})["hosts"]
        return hosts

    def ask(self, message: dict[str, str]) -> dict[str, Any]:
        """Send a request to the daemon. Raises LocalCloudError; NotRunningError also for a later cloud of this name."""
        if lifecycle.read_state(self._layout)["started"] != self._state["started"]:
            raise ReplacedError(self._layout.name)
        return control.request(self._layout, message)

    def call(self, operation: str, instance_id: str) -> None:
        """Call an operation of EC2 for one instance, from the laptop. Raises LocalCloudError."""
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError

        def inside() -> None:
            session: Any = boto3.Session(ACCESS_KEY_ID, SECRET_ACCESS_KEY, region_name=self._state["region"])
            client = session.client("ec2", endpoint_url=self._state["endpoint"])
            getattr(client, operation)(InstanceIds=[instance_id])

        try:
            enter_path(self._state["namespaces"]["laptop"]["path"], inside)
        except (BotoCoreError, ClientError) as error:
            raise LocalCloudError(f"{operation} of {instance_id}: {error}") from error

    def shared_file_system(self) -> Path:
        """Return where the shared file systems are in the daemon's mounts."""
        return Path(f"/proc/{self._state['pid']}/root{self._layout.efs}")


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
    undo: Callable[[], object] | None = None
    """Ends a fault that lasts; does nothing where what it was done to is gone. Raises LocalCloudError or OSError."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One fault, the cloud that it is for, and what faults of its kind still last on."""

    cloud: Cloud
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
        return [host for host in self.cloud.hosts(self.fault.hosts) if host["pid"]]

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
