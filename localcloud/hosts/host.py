"""One host: an instance's directory, its processes, its console."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Final

from localcloud.hosts import nfs_caches
from localcloud.hosts.images import Image
from localcloud.hosts.machine_image import GUEST, LOGIN_USERS
from localcloud.network.addressing import RESOLVER_ADDRESS, guest_commands
from localcloud.network.namespaces import NetworkNamespace
from localcloud.snapshot import Instance, Subnet

# What a node's root needs to mount, to log users in and to be a node; loading kernel modules, setting the machine's
# clock and raw input and output are not among it.
_DROPPED: Final = "-sys_module,-sys_time,-sys_rawio,-sys_boot,-syslog,-mac_admin,-mac_override"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GuestFile:
    """A file of a host, written before it boots."""

    path: str
    """Relative to the host's root."""
    content: bytes
    mode: int = 0o644
    owner: int = 0


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


def files(instance: Instance, subnet: Subnet, region: str, image: Image) -> tuple[GuestFile, ...]:
    """Return the files that differ between hosts. An image with cloud-init writes most of them itself."""
    name = hostname(instance.private_ip)
    hosts = f"127.0.0.1 localhost\n{instance.private_ip} {name}.{domain(region)} {name}\n"
    resolver = f"nameserver {RESOLVER_ADDRESS}\nsearch {domain(region)}\noptions timeout:2 attempts:2\n"
    found = [
        GuestFile(path="etc/resolv.conf", content=resolver.encode()),
        GuestFile(path="run/localcloud/network", content="\n".join([*guest_commands(instance, subnet), ""]).encode()),
    ]
    if not image.accounts:
        found.append(GuestFile(path="run/localcloud/firmware-id", content=f"{firmware_id(instance.id)}\n".encode()))
        return tuple(found)
    found += [
        GuestFile(path="etc/hostname", content=f"{name}\n".encode()),
        GuestFile(path="etc/hosts", content=hosts.encode()),
        GuestFile(path="var/lib/cloud/instance/user-data.txt", content=instance.user_data, mode=0o700),
    ]
    if instance.public_key:
        key = f"{instance.public_key.strip()}\n".encode()
        found += [
            GuestFile(path=f"home/{user}/.ssh/authorized_keys", content=key, mode=0o600, owner=uid)
            for uid, user in enumerate(LOGIN_USERS, start=1000)
        ]
    return tuple(found)


class Host:
    """Run one instance in namespaces of its own, over a layer of its own."""

    def __init__(self, *, instance: Instance, subnet: Subnet, directory: Path, region: str, image: Image) -> None:
        self.instance = instance
        self.subnet = subnet
        self.directory = directory
        self.region = region
        self.image = image
        self.process: subprocess.Popen[bytes] | None = None
        self.reboots = instance.reboots
        self._prepare()
        self.network = NetworkNamespace()
        # Opened for both directions, the pipe does not end when processes in the host close it.
        self.console = os.open(directory / "console", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def _prepare(self) -> None:
        for name in ("upper", "work", "root"):
            (self.directory / name).mkdir(parents=True)
        (self.directory / "upper").chmod(0o755)
        os.mkfifo(self.directory / "console", 0o600)
        for file in files(self.instance, self.subnet, self.region, self.image):
            path = self.directory / "upper" / file.path
            _make_parents(self.directory / "upper", path.parent, file.owner)
            path.write_bytes(file.content)
            path.chmod(file.mode)
            os.chown(path, file.owner, file.owner)

    def boot(self, *, shared: Path, caches: bool = False) -> None:
        """Start the host's first process. Call it in a thread that lives as long as the host may.

        The kernel kills the host when that thread ends, and so when the daemon dies. `caches`: between the host and its
        NFS mounts of `shared`.
        """
        pairs = [text for bind in self.image.binds for text in (str(bind.source), bind.target)]
        namespaces = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
        name, lower = hostname(self.instance.private_ip), ":".join(map(str, self.image.lower))
        cached = nfs_caches.MOUNT_OPTIONS if caches else ""
        arguments = [str(self.directory), name, str(shared), cached, lower, str(GUEST / self.image.boot), *pairs]
        self.process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "--bounding-set", _DROPPED),
                *("nsenter", f"--net={self.network.path}"),
                *namespaces,
                *("/bin/bash", str(GUEST / "init"), *arguments),
            ],
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **self.image.environment},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=self.console,
            stderr=self.console,
            start_new_session=True,
        )

    @property
    def init_pid(self) -> int:
        """Return the pid, on the machine, of the host's process 1; 0 before it exists and after its end."""
        if self.process is None or self.process.poll() is not None:
            return 0
        try:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):  # it ended before the file was opened, or read
            return 0
        return int(children[0]) if children else 0

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the host, or None while it is up."""
        return None if self.process is None else self.process.poll()

    def shut_down(self) -> None:
        """Ask the host to shut down, as EC2 does with a terminated instance; call `kill` afterwards."""
        if pid := self.init_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def wait_until(self, deadline: float) -> None:
        """Wait for the host's end until then, in seconds of the monotonic clock."""
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        """Kill every process of the host, and wait for their end."""
        if self.process is None:
            return
        for pid in (self.init_pid, self.process.pid):
            if self.process.poll() is None and pid:
                os.kill(pid, signal.SIGKILL)
                if pid != self.process.pid:
                    _wait_briefly(self.process)
        self.process.wait()

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
    found = re.findall(r"^cloud-init: user data ended with exit code (\d+)$", text, flags=re.MULTILINE)
    return int(found[-1]) if found else None


def _wait_briefly(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return


def _make_parents(root: Path, directory: Path, owner: int) -> None:
    """Make directories with the modes that they have in the image below, which they would hide otherwise."""
    for parent in reversed([directory, *directory.parents]):
        if parent == root or not parent.is_relative_to(root) or parent.exists():
            continue
        parent.mkdir()
        inside = parent.relative_to(root).parts
        if owner and inside[0] == "home" and len(inside) > 1:
            os.chown(parent, owner, owner)
            parent.chmod(0o700)
