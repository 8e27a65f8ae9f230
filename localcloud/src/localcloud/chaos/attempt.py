"""One attempt to inject a fault: the cloud, the choice of the target, and the result."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from localcloud import control_socket, lifecycle
from localcloud.chaos.schedule import Fault
from localcloud.cloud_paths import Layout
from localcloud.errors import LocalCloudError, NotRunningError
from localcloud.laptop import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from localcloud.network.namespaces import enter_path

NOTICE_S: Final = 120.0
"""AWS's time from the interruption notice to the termination, in seconds."""
T = TypeVar("T")
Host = Mapping[str, Any]
"""A host in the form of `status`."""


class NoTargetError(LocalCloudError, LookupError):
    """There is currently no target for a fault."""


class ReplacedError(NotRunningError):
    """The cloud has stopped, and another cloud with its name was started."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.args = (
            f"the embedded cloud {name} was stopped, and another cloud with this name was started; repeat the command "
            "to inject faults in the new cloud",
        )


class Cloud:
    """Access to a running cloud: its hosts, its daemon, its EC2 API and its shared file systems."""

    def __init__(self, layout: Layout, only: str = "") -> None:
        """Use a running cloud. Raises NotRunningError.

        Faults only affect hosts whose name or instance id matches the regular expression `only`; "" matches all.
        """
        self._layout, self._only = layout, only
        self._state = lifecycle.read_state(layout)

    def hosts(self, only: str = "") -> list[dict[str, Any]]:
        """Return the hosts that a fault may affect, sorted by name and address. Those that are not running have pid 0.

        `only` is the fault's own regular expression for hosts. If it is "", the constructor's expression applies.
        Raises like `all_hosts`.
        """
        only = only or self._only
        found = [host for host in self.all_hosts() if re.search(only, f"{host['name']} {host['instance_id']}")]
        return sorted(found, key=lambda host: (host["name"], ipaddress.ip_address(host["private_ip"])))

    def all_hosts(self) -> list[dict[str, Any]]:
        """Return all hosts of the cloud, in the form of `status`.

        Raises NotRunningError, or LocalCloudError if the daemon does not answer.
        """
        hosts: list[dict[str, Any]] = self.ask({"do": "status"})["hosts"]
        return hosts

    def ask(self, message: dict[str, str]) -> dict[str, Any]:
        """Send a request, such as `{"do": "status"}`, to the cloud's daemon; return its answer.

        Raises NotRunningError if the cloud has stopped or was replaced, UnknownInstanceError for an unknown instance in
        the request, and LocalCloudError for any other failure.
        """
        if lifecycle.read_state(self._layout)["started"] != self._state["started"]:
            raise ReplacedError(self._layout.name)
        return control_socket.request(self._layout, message)

    def call(self, operation: str, instance_id: str) -> None:
        """Call an EC2 operation (a method of boto3's client) for one instance, from the laptop's network.

        Raises LocalCloudError if the call fails, or OSError if the cloud has stopped.
        """
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
        """Return the directory with one directory per shared file system.

        The path leads into the daemon's mount namespace. It is valid on this machine while the daemon runs.
        """
        return Path(f"/proc/{self._state['pid']}/root{self._layout.efs}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patterns:
    """The user's settings of faults: patterns for programs and files on the hosts, and the time of a notice.

    A kind of fault whose pattern is "" has no target.
    """

    supervisor: str = ""
    """Regular expression for the supervisor's command line."""
    flip: str = ""
    """Glob pattern of files below the shared file systems."""
    writing: str = ""
    """Glob pattern of files that exist only while a program writes, such as a checkpoint's temporary file.

    They are below the shared file systems. If the pattern is "", no fault waits for such a file.
    """
    notice_s: float = NOTICE_S
    """Seconds from the interruption notice to the termination."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """A fault that was injected."""

    what: str
    target: str = ""
    """The target. While the fault lasts, it is not injected there again."""
    undo: Callable[[], object] | None = None
    """Repairs a temporary fault, or does nothing if its target is gone. Raises LocalCloudError or OSError."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """A fault to inject, its cloud, and the targets of active faults of the same kind."""

    cloud: Cloud
    fault: Fault
    patterns: Patterns
    busy: Collection[str] = ()
    """Targets of active faults of this kind."""

    def choose(self, things: Sequence[T], what: str) -> T:
        """Choose one of several targets by the fault's random place. Raises NoTargetError if there are none.

        `what` names the kind of target in the message `there is no WHAT`.
        """
        if not things:
            raise NoTargetError(f"there is no {what}{' without an active fault of this kind' if self.busy else ''}")
        return things[int(self.fault.place * len(things))]

    def hosts(self) -> list[dict[str, Any]]:
        """Return the running hosts that the fault may affect, without those that have an active fault of this kind."""
        return [host for host in self.running() if host["instance_id"] not in self.busy]

    def running(self) -> list[dict[str, Any]]:
        """Return the running hosts that the fault may affect, including those with an active fault of this kind."""
        return [host for host in self.cloud.hosts(self.fault.hosts) if host["pid"]]

    def host(self) -> Host:
        """Choose one of `hosts()`. Raises NoTargetError if there is none."""
        return self.choose(self.hosts(), "running host")

    def unless_busy(self, target: str) -> str:
        """Return `target`, the only possible one. Raises NoTargetError while a fault of this kind is active there."""
        if target in self.busy:
            raise NoTargetError(f"a fault of this kind is still active on the {target}")
        return target


def named(host: Host) -> str:
    """Return `NAME (INSTANCE ID)` for messages. Without a name tag, NAME is the host name."""
    return f"{host['name'] or host['hostname']} ({host['instance_id']})"
