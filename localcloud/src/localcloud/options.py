"""The options of `start`, read from a command line and written to one."""

from __future__ import annotations

import argparse
import dataclasses
import re
from typing import Final

from localcloud.errors import LocalCloudError
from localcloud.hosts.binds import Bind
from localcloud.hosts.debian_image import DISTRIBUTIONS

NAMESPACES, MACHINES = "namespace", "vm"
"""What hosts may be made of: namespaces of this machine, or machines of QEMU."""
MACHINE_IMAGE: Final = "debian-12"
"""The image of machines where none is named: they boot no other than a distribution's own."""

_CPUS: Final = r"[0-9]{1,3}(\.[0-9]{1,3})?"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `start`."""

    name: str
    binds: tuple[Bind, ...] = ()
    efs_size: str = ""
    """Size of a memory file system for all shared file systems, such as 64m; empty: on disk, bounded by the disk."""
    metrics_speed: float = 1.0
    """How many minutes of the metrics and alarms pass in one."""
    image: str = ""
    """Distribution whose image there is beside Amazon's, and whose hosts have its own root; empty: none."""
    reach: tuple[str, ...] = ()
    """Names of hosts of the real internet that the cloud's hosts reach, at ports 80 and 443."""
    packages: bool = False
    """Whether hosts reach the package index that this machine's pip is configured with."""
    nfs_client: bool = False
    """Whether each host sees the shared file system as an NFS client does: caches, slow opens, polled locks."""
    cpus: float = 0.0
    """Processors' worth of time that each host has; 0: what the others leave."""
    link_mbit: int = 0
    """Bandwidth of each host's link, Mbit/s; 0: what the machine can do."""
    hosts: str = NAMESPACES
    """What hosts are made of: `namespace` or `vm`."""
    api_faults: int | None = None
    """Seed of throttling, delays and missing capacity as on a real account; None: no such faults."""

    def to_argv(self) -> list[str]:
        """Return the daemon's command line."""
        binds = [part for bind in self.binds for part in ("--mount", f"{bind.source}:{bind.target}")]
        speed = ["--metrics-speed", f"{self.metrics_speed:g}"]
        reach = [part for host in self.reach for part in ("--reach", host)]
        image = ["--image", self.image] if self.image else []
        flags = [*(["--packages"] if self.packages else []), *(["--nfs-client"] if self.nfs_client else [])]
        limits = ["--cpus", f"{self.cpus:g}"] if self.cpus else []
        limits += ["--link-mbit", str(self.link_mbit)] if self.link_mbit else []
        faults = [] if self.api_faults is None else ["--api-faults", str(self.api_faults)]
        sizes = ["--efs-size", self.efs_size, *speed]
        return ["--name", self.name, "--hosts", self.hosts, *sizes, *binds, *image, *reach, *flags, *limits, *faults]


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the options of `start`."""
    command.add_argument("--mount", action="append", default=[], metavar="SRC:DST", help="show SRC as DST in all hosts")
    command.add_argument("--efs-size", default="", metavar="SIZE", help="bound the shared file systems (e.g. 64m)")
    command.add_argument(
        "--metrics-speed", default="1", metavar="N", help="let N minutes of metrics and alarms pass in one (default: 1)"
    )
    command.add_argument(
        "--image",
        default="",
        metavar="NAME",
        help=f"offer Debian's own image too, made by mmdebstrap at its first use: {', '.join(DISTRIBUTIONS)}",
    )
    command.add_argument(
        "--reach",
        action="append",
        default=[],
        metavar="HOST",
        help="let hosts reach HOST of the real internet, at ports 80 and 443; an image's package archive always is",
    )
    command.add_argument(
        "--packages",
        action="store_true",
        help="let hosts and laptop reach the package index that pip is configured with here, with its credentials",
    )
    command.add_argument(
        "--nfs-client",
        action="store_true",
        help="show each host the shared file system as NFS does: others' files late, slow opens, locks asked for again",
    )
    command.add_argument(
        "--cpus",
        default="",
        metavar="N",
        help="give each host the time of N processors, such as 0.25, and no more; default: what the others leave",
    )
    command.add_argument(
        "--link-mbit",
        default="",
        metavar="N",
        help="let each host receive N Mbit/s and no more, such as 1000; default: what this machine can do",
    )
    command.add_argument(
        "--hosts",
        default=NAMESPACES,
        metavar="KIND",
        help=f"what hosts are made of: {NAMESPACES} (default), or {MACHINES}: machines of QEMU, on Debian's own root",
    )
    command.add_argument(
        "--api-faults",
        default="",
        metavar="SEED",
        help="throttle, delay and run out of capacity as a real account does; the same SEED draws the same faults",
    )


def _check_hosts(arguments: argparse.Namespace) -> None:
    if arguments.hosts not in (NAMESPACES, MACHINES):
        raise LocalCloudError(f"--hosts {arguments.hosts!r}: must be {NAMESPACES} or {MACHINES}")
    if arguments.hosts == MACHINES and arguments.nfs_client:
        raise LocalCloudError(f"--nfs-client with --hosts {MACHINES}: machines have the real client of a real server")
    if arguments.hosts == MACHINES and arguments.cpus:
        raise LocalCloudError(f"--cpus with --hosts {MACHINES}: machines have processors of their own")
    if arguments.hosts == MACHINES and arguments.packages:
        raise LocalCloudError(f"--packages with --hosts {MACHINES}: machines have no package index but apt's")


def from_arguments(arguments: argparse.Namespace) -> Options:
    """Return the options of a parsed command line. Raises LocalCloudError for a value out of bounds."""
    if arguments.efs_size and not re.fullmatch(r"[1-9][0-9]{0,6}[kmg]", arguments.efs_size):
        raise LocalCloudError(f"--efs-size {arguments.efs_size!r}: must be 1 to 9999999 and k, m or g, such as 64m")
    if not re.fullmatch(r"[1-9][0-9]{0,2}", arguments.metrics_speed):
        raise LocalCloudError(f"--metrics-speed {arguments.metrics_speed!r}: must be a whole number from 1 to 999")
    if arguments.image and arguments.image not in DISTRIBUTIONS:
        raise LocalCloudError(f"--image {arguments.image!r}: must be one of {', '.join(DISTRIBUTIONS)}")
    for host in arguments.reach:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", host, flags=re.ASCII):
            raise LocalCloudError(f"--reach {host!r}: must be the name of a host in lower case, without port or path")
    if arguments.api_faults and not re.fullmatch(r"[0-9]{1,9}", arguments.api_faults, flags=re.ASCII):
        raise LocalCloudError(f"--api-faults {arguments.api_faults!r}: must be a whole number from 0 to 999999999")
    if arguments.cpus and not (re.fullmatch(_CPUS, arguments.cpus, re.ASCII) and 0.05 <= float(arguments.cpus) <= 999):
        raise LocalCloudError(f"--cpus {arguments.cpus!r}: must be a number from 0.05 to 999, such as 0.25")
    if arguments.link_mbit and not re.fullmatch(r"[1-9][0-9]{0,5}", arguments.link_mbit, flags=re.ASCII):
        raise LocalCloudError(f"--link-mbit {arguments.link_mbit!r}: must be a whole number from 1 to 999999")
    _check_hosts(arguments)
    return Options(
        name=arguments.name,
        binds=tuple(map(Bind.parse, arguments.mount)),
        efs_size=arguments.efs_size,
        metrics_speed=float(arguments.metrics_speed),
        image=arguments.image or (MACHINE_IMAGE if arguments.hosts == MACHINES else ""),
        hosts=arguments.hosts,
        reach=tuple(arguments.reach),
        packages=arguments.packages,
        nfs_client=arguments.nfs_client,
        cpus=float(arguments.cpus or 0),
        link_mbit=int(arguments.link_mbit or 0),
        api_faults=int(arguments.api_faults) if arguments.api_faults else None,
    )
