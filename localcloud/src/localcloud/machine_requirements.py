"""The requirements of this machine, checked together. Each missing one is reported with a fix."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from localcloud.api.permissions import evaluator
from localcloud.errors import CommandError, MissingRequirementsError
from localcloud.hosts import nfs_client
from localcloud.network.namespaces import ROUTER_SYSCTLS, NetworkNamespace
from localcloud.network.nftables import ruleset
from localcloud.snapshot import Snapshot

_SEARCH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Debian and Ubuntu packages by command.
_COMMANDS: Final = {
    "bash": "bash",
    "curl": "curl",
    "getent": "libc-bin",
    "ip": "iproute2",
    "mke2fs": "e2fsprogs",
    "mount": "mount",
    "nft": "nftables",
    "nsenter": "util-linux",
    "pivot_root": "util-linux",
    "setpriv": "util-linux",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "unshare": "util-linux",
}

_NFS_COMMANDS: Final = {nfs_client.COMMAND: "bindfs", nfs_client.COMPILER: "gcc libc6-dev"}
_MACHINE_COMMANDS: Final = {
    "dnsmasq": "dnsmasq-base",
    "mmdebstrap": "mmdebstrap",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
}


def missing(
    find: Callable[[str], str | None],
    commands: Mapping[str, str] = _COMMANDS,
    option: str = "",
    devices: Mapping[Path, str] = MappingProxyType({}),
) -> list[str]:
    """Return one line, with a fix, for each missing command and device.

    `find` returns the path of a command, or None. `commands` maps commands to packages, `devices` maps devices to
    kernel modules. `option`, the option of `start` that needs them, begins each line.
    """
    lines = [
        f"command {command} not found; on Debian or Ubuntu: apt-get install {package}"
        for command, package in commands.items()
        if find(command) is None
    ]
    lines += [
        f"{path} does not exist; load its module with: modprobe {module}; a container also needs --device {path}"
        for path, module in devices.items()
        if not path.is_char_device()
    ]
    return [f"{option}: {line}" for line in lines] if option else lines


def check(*, nfs: bool = False, machines: bool = False) -> None:
    """Raise MissingRequirementsError with everything that this machine lacks.

    `nfs` adds the requirements of `--nfs-client`, and `machines` those of `--hosts vm`. If this process is root, the
    kernel's features are tested too, in a temporary network namespace.
    """

    def find(command: str) -> str | None:
        return shutil.which(command, path=_SEARCH)

    absent = missing(find)
    lines = [*absent, *evaluator.missing()]
    if machines:
        lines += missing(find, _MACHINE_COMMANDS, "--hosts vm", {Path("/dev/net/tun"): "tun"})
    if nfs:
        lines += missing(find, _NFS_COMMANDS, "--nfs-client", {Path("/dev/fuse"): "fuse"})
    if os.geteuid() != 0:
        lines.append("root is needed for namespaces and mounts; use sudo, or a privileged container")
    else:
        lines += _missing_abilities(network=not absent)
    if lines:
        raise MissingRequirementsError(lines)


def _missing_abilities(*, network: bool) -> list[str]:
    """Return one line for each missing kernel feature or permission. `network`: also test links and nftables rules."""
    missing = []
    known = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    if "overlay" not in known and not Path("/sys/module/overlay").exists():
        missing.append("the kernel has no overlay file system; load it with: modprobe overlay")
    try:
        namespace = NetworkNamespace(ROUTER_SYSCTLS)
    except OSError as error:
        missing.append(
            f"cannot create network namespaces ({error.strerror or error}); if this machine is a container, start it "
            "with --privileged"
        )
        return missing
    try:
        if network:
            namespace.ip(["link add name probe0 type veth peer name probe1"])
            namespace.nft(ruleset(Snapshot(), "vpc-0"))
    except CommandError as error:
        missing.append(f"the kernel lacks veth links or nf_tables with NAT ({error}); try: modprobe -a veth nft_nat")
    finally:
        namespace.close()
    return missing
