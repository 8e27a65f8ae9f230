"""What the machine must have: checked all at once, each with what to do about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from localcloud.api.permissions import evaluator
from localcloud.errors import CommandError, MissingRequirementsError
from localcloud.hosts import nfs_client
from localcloud.network.namespaces import ROUTER_SYSCTLS, NetworkNamespace
from localcloud.network.nftables import ruleset
from localcloud.snapshot import Snapshot

_SEARCH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Command to Debian and Ubuntu package.
_COMMANDS: Final = {
    "bash": "bash",
    "curl": "curl",
    "getent": "libc-bin",
    "ip": "iproute2",
    "mount": "mount",
    "nft": "nftables",
    "nsenter": "util-linux",
    "pivot_root": "util-linux",
    "setpriv": "util-linux",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "unshare": "util-linux",
}


_MACHINE_COMMANDS: Final = {
    "dnsmasq": "dnsmasq-base",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
}
_TUN: Final = Path("/dev/net/tun")


def missing_commands(find: Callable[[str], str | None], commands: Mapping[str, str] = _COMMANDS) -> list[str]:
    """Return one line for each command that `find` does not know; `commands`: each with its package."""
    absent = [command for command in commands if find(command) is None]
    return [
        f"command {command} not found; on Debian or Ubuntu: apt-get install {commands[command]}" for command in absent
    ]


def missing_for_machines(find: Callable[[str], str | None], tun: Path = _TUN) -> list[str]:
    """Return one line for each thing that machines need and this one lacks."""
    lines = [f"--hosts vm: {line}" for line in missing_commands(find, _MACHINE_COMMANDS)]
    if not tun.is_char_device():
        lines.append(f"--hosts vm: there is no {tun}; load it with: modprobe tun")
    return lines


def check(*, nfs: bool = False, machines: bool = False) -> None:
    """Raise MissingRequirementsError, which lists all that this machine lacks; with what `nfs`, `machines` need."""
    absent = missing_commands(lambda command: shutil.which(command, path=_SEARCH))
    missing = [*absent, *evaluator.missing()]
    if machines:
        missing += missing_for_machines(lambda command: shutil.which(command, path=_SEARCH))
    if nfs:
        missing += nfs_client.missing(lambda command: shutil.which(command, path=_SEARCH))
    if os.geteuid() != 0:
        missing.append("not run as root, which namespaces and mounts need; use sudo, or a privileged container")
    else:
        missing += _missing_abilities(network=not absent)
    if missing:
        raise MissingRequirementsError(missing)


def _missing_abilities(*, network: bool) -> list[str]:
    missing = []
    known = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    if "overlay" not in known and not Path("/sys/module/overlay").exists():
        missing.append("the kernel has no overlay file system; load it with: modprobe overlay")
    try:
        namespace = NetworkNamespace(ROUTER_SYSCTLS)
    except OSError as error:
        missing.append(f"network namespaces cannot be made ({error}); in a container, run it with --privileged")
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
