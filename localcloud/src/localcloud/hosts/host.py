"""One host: an instance's directory, its first process, its network, its console; of whatever it is made."""

from __future__ import annotations

import abc
import hashlib
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import ClassVar

from localcloud.hosts.first_process import FirstProcess
from localcloud.network.namespaces import NetworkNamespace
from localcloud.snapshot import Instance, Subnet


def hostname(private_ip: str) -> str:
    """Return the name that EC2 gives an instance: ip-10-0-1-5 for 10.0.1.5."""
    return "ip-" + private_ip.replace(".", "-")


def domain(region: str) -> str:
    """Return the region's domain of private names."""
    return "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"


def firmware_id(instance_id: str) -> str:
    """Return the UUID and serial number in an instance's firmware: programs know EC2 by its beginning."""
    digits = hashlib.sha256(instance_id.encode()).hexdigest()
    return str(uuid.UUID(f"ec2{digits[:29]}"))


class Host(abc.ABC):
    """Run one instance on files of its own, in a network of its own."""

    grace_s: ClassVar[float]
    """How long it may take to shut down: as on AWS, services see that the node leaves."""

    def __init__(self, *, instance: Instance, subnet: Subnet, directory: Path, region: str) -> None:
        self.instance = instance
        self.subnet = subnet
        self.directory = directory
        self.region = region
        self.process: FirstProcess | None = None
        self.reboots = instance.reboots
        self.directory.mkdir(parents=True)
        os.mkfifo(directory / "console", 0o600)
        self._prepare()
        self.network = NetworkNamespace()
        # Opened for both directions, the pipe does not end when processes in the host close it.
        self.console = os.open(directory / "console", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Make its files, in its directory."""

    @abc.abstractmethod
    def _start(self) -> FirstProcess:
        """Start its first process in its network, which is linked."""

    @abc.abstractmethod
    def shut_down(self) -> None:
        """Ask the host to shut down, as EC2 does with a terminated instance; call `kill` afterwards."""

    @property
    def agent(self) -> str:
        """Return the path of the socket that takes commands for it; empty where its namespaces can be entered."""
        return ""

    def boot(self) -> None:
        """Start the host. Call it in a thread that lives as long as the host may: the kernel kills the host with it."""
        self.process = self._start()

    @property
    def init_pid(self) -> int:
        """Return the pid, on the machine, of the host's process 1; 0 before it exists and after its end."""
        return 0 if self.process is None else self.process.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the host, or None while it is up."""
        return None if self.process is None else self.process.exit_code

    def wait_until(self, deadline: float) -> None:
        """Wait for the host's end until then, in seconds of the monotonic clock."""
        if self.process is not None:
            self.process.wait_until(deadline)

    def kill(self) -> None:
        """Kill every process of the host, and wait for their end."""
        if self.process is not None:
            self.process.kill()

    def unplug(self) -> None:
        """Kill the host and give it a new, unconnected network, as a machine that is switched off has none."""
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
    """Read the exit code of user data from a host's console; None while it runs."""
    found = re.findall(r"^cloud-init: user data ended with exit code (\d+)\r?$", text, flags=re.MULTILINE)
    return int(found[-1]) if found else None
