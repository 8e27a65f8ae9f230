"""One host of any kind: an instance's directory, first process, network and console."""

from __future__ import annotations

import abc
import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from localcloud.network.namespaces import NetworkNamespace
from localcloud.snapshot import Instance, Subnet

# Capabilities that a node's root does not have: loading kernel modules, setting the machine's clock, raw input and
# output, and others. It can mount, log users in and run services.
_DROPPED: Final = "-sys_module,-sys_time,-sys_rawio,-sys_boot,-syslog,-mac_admin,-mac_override"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DOMAIN: Final = "ec2.internal"
"""The domain of private names in us-east-1."""


def hostname(private_ip: str) -> str:
    """Return EC2's host name for an instance: ip-10-0-1-5 for 10.0.1.5."""
    return "ip-" + private_ip.replace(".", "-")


def firmware_id(instance_id: str) -> str:
    """Return the UUID of an instance's firmware, which is also its serial number. Programs detect EC2 by the prefix."""
    digits = hashlib.sha256(instance_id.encode()).hexdigest()
    return str(uuid.UUID(f"ec2{digits[:29]}"))


class FirstProcess:
    """A command that runs as process 1 of a new PID namespace, in a network namespace.

    Create it in a thread that lives as long as the process. When the thread exits, and so when the daemon dies, the
    kernel kills the process and all its descendants.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        network: NetworkNamespace,
        output: int,
        namespaces: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        group: Path | None = None,
        processors: Sequence[int] = (),
    ) -> None:
        """Start the process, without the capabilities in _DROPPED. Raises OSError if it cannot be started.

        `output` is a descriptor for standard output and error. `namespaces` are options of `unshare` for namespaces in
        addition to PIDs and mounts. `environment` replaces this process's variables; a default PATH is added. `group`
        is the file `cgroup.procs` of the process's control group. `processors` are the numbers of its allowed
        processors, () for all.
        """
        join = ("sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group)) if group else ()
        self._unshare = subprocess.Popen(
            [
                *join,
                *(("taskset", "--cpu-list", ",".join(map(str, processors))) if processors else ()),
                *("setpriv", "--pdeathsig", "KILL", "--bounding-set", _DROPPED),
                *("nsenter", f"--net={network.path}"),
                *("unshare", "--mount", *namespaces, "--pid", "--fork", "--kill-child"),
                *command,
            ],
            env={"PATH": _PATH, **(environment or {})},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Return the process's pid on the machine, or 0 before it exists and after it has exited."""
        if self._unshare.poll() is not None:
            return 0
        try:
            children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):  # it exited before the file was opened or read
            return 0
        return int(children[0]) if children else 0

    @property
    def exit_code(self) -> int | None:
        """Return the process's exit code, or None while it runs. A negative code is the number of a fatal signal."""
        return self._unshare.poll()

    def terminate(self) -> None:
        """Send SIGTERM to the process, if it is running."""
        if pid := self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def wait_until(self, deadline: float) -> None:
        """Wait for the process's exit until a deadline, in seconds of the monotonic clock."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._unshare.wait(timeout=max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        """Kill the process and all its descendants, and wait for their exit."""
        for pid in (self.pid, self._unshare.pid):
            if self._unshare.poll() is None and pid:
                os.kill(pid, signal.SIGKILL)
                if pid != self._unshare.pid:
                    self.wait_until(time.monotonic() + 5)
        self._unshare.wait()


class Host(abc.ABC):
    """One instance, with its own files and network. Creating it creates these; `boot` starts it."""

    grace_s: ClassVar[float]
    """Time for a shutdown, in seconds. As on AWS, services are stopped and notice that the node leaves."""

    def __init__(self, *, instance: Instance, subnet: Subnet, directory: Path) -> None:
        self.instance = instance
        self.subnet = subnet
        self.directory = directory
        self.process: FirstProcess | None = None
        self.reboots = instance.reboots
        self.directory.mkdir(parents=True)
        os.mkfifo(directory / "console", 0o600)
        self._prepare()
        self.network = NetworkNamespace()
        # Open for both directions, so that the pipe stays open when processes in the host close it.
        self.console = os.open(directory / "console", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Create the host's files in its directory."""

    @abc.abstractmethod
    def _start(self) -> FirstProcess:
        """Start and return the host's first process. The host's network is already linked."""

    @abc.abstractmethod
    def shut_down(self) -> None:
        """Ask the host to shut down, as EC2 does with a terminated instance, and do not wait.

        Call `wait_until` and `kill` afterwards.
        """

    @property
    def agent(self) -> str:
        """Return the path of the socket for commands on the host, or "" if commands enter the host's namespaces."""
        return ""

    def boot(self) -> None:
        """Start the host. Call this in a thread that lives as long as the host, because its exit kills the host.

        Raises OSError if the host cannot be started.
        """
        self.process = self._start()

    @property
    def init_pid(self) -> int:
        """Return the pid, on the machine, of the host's process 1, or 0 before it exists and after it has exited."""
        return 0 if self.process is None else self.process.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the host, or None before its start and while it is running."""
        return None if self.process is None else self.process.exit_code

    def wait_until(self, deadline: float) -> None:
        """Wait for the host's exit until a deadline, in seconds of the monotonic clock."""
        if self.process is not None:
            self.process.wait_until(deadline)

    def kill(self) -> None:
        """Kill every process of the host, and wait for their exit."""
        if self.process is not None:
            self.process.kill()

    def unplug(self) -> None:
        """Kill the host and give it a new, unconnected network, like a machine that is switched off."""
        self.kill()
        self.network.close()
        self.network = NetworkNamespace()

    def remove(self) -> None:
        """Kill the host and remove its network and its files."""
        self.kill()
        os.close(self.console)
        self.network.close()
        shutil.rmtree(self.directory, ignore_errors=False)


def read_result(text: str) -> int | None:
    """Parse the exit code of the latest run of user data from a host's console. Returns None if none has finished."""
    found = re.findall(r"^cloud-init: user data ended with exit code (\d+)\r?$", text, flags=re.MULTILINE)
    return int(found[-1]) if found else None
