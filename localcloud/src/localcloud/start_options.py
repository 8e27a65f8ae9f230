"""The options of `start`, parsed from a command line and converted to one."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any, Final

from localcloud.errors import LocalCloudError
from localcloud.hosts.debian_image import DISTRIBUTIONS
from localcloud.hosts.images import Bind

NAMESPACES, MACHINES = "namespace", "vm"
"""The kinds of hosts: namespaces of this machine, or QEMU machines."""
MACHINE_IMAGE: Final = "debian-12"
"""Default image of machines, which only boot a distribution's own image."""
_CPUS: Final = r"0\.(0[5-9]|[1-9][0-9]?)[0-9]?|[1-9][0-9]{0,2}(\.[0-9]{1,3})?"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `start`. Each field is an option with the same name.

    Raises LocalCloudError for options that cannot be combined.
    """

    name: str
    mount: tuple[Bind, ...] = ()
    efs_size: str = ""
    """Size of a memory file system for all shared file systems, such as 64m. Empty: on disk, limited by the disk."""
    metrics_speed: float = 1.0
    """Minutes of metrics and alarms that pass in one minute."""
    image: str = ""
    """Distribution whose image is offered in addition to Amazon's. Its hosts have their own root. Empty: none."""
    reach: tuple[str, ...] = ()
    """Names of hosts of the real internet that the cloud's hosts can reach, at ports 80 and 443."""
    packages: bool = False
    """Whether hosts can use the package index that this machine's pip is configured with."""
    nfs_client: bool = False
    """Whether each host sees the shared file system with NFS client semantics: caches, slow opens, polled locks."""
    cpus: float = 0.0
    """Processor time of each host, in processors. 0: no limit."""
    link_mbit: int = 0
    """Bandwidth of each host's link in Mbit/s. 0: no limit."""
    hosts: str = NAMESPACES
    """`namespace` or `vm`."""
    api_faults: int | None = None
    """Seed of throttling, delays and missing capacity as on a real account. None: no such faults."""
    vcpus: int | None = None
    """Quota of standard vCPUs, for on-demand and spot each, as of a new account. None: quotas that no test reaches."""
    owner: int = 0
    """The cloud stops when this process exits. 0: only `stop` stops it."""

    def __post_init__(self) -> None:
        if self.hosts == MACHINES:
            for given, flag, why in (
                (self.nfs_client, "nfs-client", "machines already use a real NFS client and server"),
                (self.cpus, "cpus", "machines have their own processors"),
                (self.packages, "packages", "machines have only apt's package index"),
                (
                    self.image and DISTRIBUTIONS[self.image].bare,
                    f"image {self.image}",
                    "machines boot only images with the AWS CLI",
                ),
            ):
                if given:
                    raise LocalCloudError(f"--{flag} cannot be combined with --hosts {MACHINES}: {why}")

    def to_argv(self) -> list[str]:
        """Return the options as arguments for `from_arguments`. Options with their default value are left out."""
        argv: list[str] = []
        for field in dataclasses.fields(self):
            value, flag = getattr(self, field.name), f"--{field.name.replace('_', '-')}"
            if isinstance(value, tuple):
                argv += [word for each in value for word in (flag, str(each))]
            elif value != field.default:
                argv += [flag] if value is True else [flag, str(value)]
        return argv


def _add(
    command: argparse.ArgumentParser,
    flag: str,
    pattern: str,
    must: str,
    convert: Callable[[str], Any] = str,
    **settings: Any,
) -> None:
    """Add an option whose value must match a pattern. `must` describes the pattern in error messages.

    `convert` converts the text to the option's value. Parsing an invalid text raises LocalCloudError.
    """

    def read(text: str) -> Any:
        if not re.fullmatch(pattern, text, flags=re.ASCII):
            raise LocalCloudError(f"{flag} {text!r}: must be {must}")
        return convert(text)

    command.add_argument(flag, type=read, **settings)


def add_vcpus(command: argparse.ArgumentParser) -> None:
    """Declare the option `--vcpus` of `start` and `api`."""
    _add(command, "--vcpus", r"0|[1-9][0-9]{0,5}", "a whole number from 0 to 999999", int, metavar="N",
        help="give the account the quotas of a new account, with N standard vCPUs (5 or more on AWS); "
        "default: more than any test needs",
    )  # fmt: skip


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the options of `start`."""
    add = functools.partial(_add, command)
    command.add_argument(
        "--mount",
        type=Bind.parse,
        action="append",
        metavar="SRC:DST",
        help="show this machine's directory SRC as DST in all hosts, read-only",
    )
    add("--efs-size", r"[1-9][0-9]{0,6}[kmg]", "1 to 9999999 and k, m or g, such as 64m", metavar="SIZE",
        help="limit the size of the shared file systems (e.g. 64m)")  # fmt: skip
    add("--metrics-speed", r"[1-9][0-9]{0,2}(\.0)?", "a whole number from 1 to 999", float, metavar="N",
        help="run metrics and alarms N times faster (default: 1)")  # fmt: skip
    add("--image", "|".join(DISTRIBUTIONS), f"one of {', '.join(DISTRIBUTIONS)}", metavar="NAME",
        help=f"also offer Debian's image, created by mmdebstrap: {', '.join(DISTRIBUTIONS)}")  # fmt: skip
    add("--reach", r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "the name of a host in lower case, without port or path",
        action="append", metavar="HOST",
        help="let hosts reach HOST on the internet at ports 80 and 443, in addition to the image's package archive",
    )  # fmt: skip
    command.add_argument(
        "--packages",
        action="store_true",
        help="let hosts and laptop use the package index that pip is configured with here, with its credentials",
    )
    command.add_argument(
        "--nfs-client",
        action="store_true",
        help="show the shared file system as over NFS: late changes of other hosts, slow opens, locks "
        "that are requested again",
    )
    add("--cpus", _CPUS, "a number from 0.05 to 999, such as 0.25", float, metavar="N",
        help="limit each host to N processors, for example 0.25; default: no limit",
    )  # fmt: skip
    add("--link-mbit", r"[1-9][0-9]{0,5}", "a whole number from 1 to 999999", int, metavar="N",
        help="limit what each host receives to N Mbit/s, for example 1000; default: no limit")  # fmt: skip
    add("--hosts", f"{NAMESPACES}|{MACHINES}", f"{NAMESPACES} or {MACHINES}", metavar="KIND",
        help=f"{NAMESPACES} (default), or {MACHINES}: QEMU machines, on Debian's root file system")  # fmt: skip
    add("--api-faults", r"[0-9]{1,9}", "a whole number from 0 to 999999999", int, metavar="SEED",
        help="inject API throttling, delays and missing capacity, as in a real account; the same SEED "
             "gives the same faults",
    )  # fmt: skip
    add_vcpus(command)
    add("--owner", r"[1-9][0-9]{0,9}", "the id of a process", int, metavar="PID",
        help="stop the cloud when process PID exits for any reason")  # fmt: skip


def from_arguments(arguments: argparse.Namespace) -> Options:
    """Return the options of a parsed command line. Machines without an image get the default one.

    Raises LocalCloudError for conflicting options.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Options):
        value = getattr(arguments, field.name)
        if value is not None:
            values[field.name] = tuple(value) if isinstance(value, list) else value
    if arguments.hosts == MACHINES:
        values["image"] = arguments.image or MACHINE_IMAGE
    return Options(**values)
