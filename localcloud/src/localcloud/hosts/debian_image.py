"""Debian's images: a root file system with the packages of Debian's own image for EC2, cloud-init among them.

It is made once by mmdebstrap from the archive that mmdebstrap finds by itself, and kept in the user's cache. Hosts of
such an image have it below their own layer, in place of this machine's root.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from localcloud.hosts.debian_root import DIVERTED, Root
from localcloud.hosts.images import Bind, Image
from localcloud.hosts.machine_image import GUEST, SHARED_MOUNTS, install, make_devices, make_mount_point, write

OWNER: Final = "136693071363"
"""The account that publishes Debian's images (Debian wiki, Cloud/AmazonEC2Image)."""
ROOT_DEVICE: Final = "/dev/xvda"

# The classes BASE, CLOUD, EC2, EXTRAS and SYSTEM_BOOT of Debian's cloud team (salsa.debian.org/cloud-team/
# debian-cloud-images, config_space/bookworm/package_config), without what boots a kernel, keeps its clock or manages
# its network: hosts have none of these of their own. amazon-ec2-utils makes names of disks, of which they have none.
PACKAGES: Final = (
    *("apt-utils", "init", "iptables", "iputils-ping", "less", "nano", "netbase", "vim-tiny", "whiptail"),
    *("awscli", "cloud-init", "cloud-guest-utils", "openssh-server", "ssh-import-id"),
    *("bash-completion", "bind9-host", "ca-certificates", "curl", "ethtool", "pciutils", "psmisc", "screen", "socat"),
    *("dbus", "iproute2", "libnss-myhostname", "libpam-systemd", "polkitd", "procps", "sudo", "uuid-runtime"),
    *("xz-utils", "zstd"),
)
AWS: Final = "/usr/bin/aws"
AWS_STAND_IN: Final = f'#!/bin/sh\nexec {AWS}{DIVERTED} --endpoint-url "$AWS_ENDPOINT_URL" "$@"\n'
# Programs that need a stand-in, and whose packages keep theirs beside it: the AWS CLI of Debian 12 is older than
# AWS_ENDPOINT_URL, and no kernel mounts NFS in a namespace from a server that is none.
_DIVERSIONS: Final = (
    AWS,
    "/usr/bin/systemd-detect-virt",
    "/sbin/mount.nfs4",
    "/usr/sbin/mount.nfs4",
    "/sbin/mount.nfs",
    "/usr/sbin/mount.nfs",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distribution:
    """A release of Debian with an image on EC2."""

    name: str
    """As `start --image` takes it: debian-12."""
    suite: str
    login_user: str = "admin"
    bare: bool = False
    """Without the AWS CLI, as Canonical's images. Neither kind has git, a compiler, headers or python3-venv."""

    @property
    def release(self) -> str:
        """Return the release as Debian names it: debian-12."""
        return self.name.removesuffix("-bare")

    @property
    def parameter(self) -> str:
        """Return the public SSM parameter that holds the id of the release's newest image."""
        return f"/aws/service/debian/release/{self.release.removeprefix('debian-')}/latest/amd64"

    @property
    def ami_name(self) -> str:
        """Return the name of the image, which begins as Debian's do (debian-12-amd64-20250814-2204)."""
        return f"{self.release}-amd64-embedded"

    @property
    def root(self) -> Root:
        """Return the root of its hosts."""
        packages = tuple(name for name in PACKAGES if not (self.bare and name == "awscli"))
        return Root(name=self.name, suite=self.suite, packages=packages, diversions=_DIVERSIONS)


# What a host without hardware needs: its links are up when cloud-init starts.
_LINKS_ARE_UP: Final = {
    "datasource": {"Ec2": {"apply_network_config": False}},
    "network": {"config": "disabled"},
}
DISTRIBUTIONS: Final = {
    each.name: each
    for each in (
        Distribution(name="debian-12", suite="bookworm"),
        Distribution(name="debian-12-bare", suite="bookworm", bare=True),
        Distribution(name="debian-13", suite="trixie"),
    )
}


def build(
    layer: Path, root: Path, distribution: Distribution, binds: tuple[Bind, ...], environment: Mapping[str, str]
) -> Image:
    """Fill the empty directory `layer`, between a root and its hosts, with stand-ins and settings; return the image."""
    make_devices(layer / "dev")
    for directory in (*SHARED_MOUNTS, "run/lock", "run/sshd", ".machine"):
        (layer / directory).mkdir(parents=True)
    for directory in SHARED_MOUNTS:
        (layer / directory).chmod(0o700)
    (layer / "run/localcloud").chmod(0o755)
    for bind in binds:
        make_mount_point(layer, bind.target)
    write(layer / "etc/environment", "".join(f"{key}={value}\n" for key, value in sorted(environment.items())))
    write(layer / "etc/cloud/cloud.cfg.d/01_debian_cloud.cfg", cloud_config(settings(distribution) | _LINKS_ARE_UP))
    _stand_in(layer, bare=distribution.bare)
    return Image(lower=(layer, root), boot="boot_cloud_init", environment=environment, binds=binds, accounts=False)


def _stand_in(layer: Path, *, bare: bool) -> None:
    """Put the stand-ins where the programs are whose names are diverted, or will be once apt has installed them."""
    kept = Path("usr/lib/localcloud")
    write(layer / (kept / "aws" if bare else AWS.strip("/")), AWS_STAND_IN, mode=0o755)
    install(GUEST / "dmidecode", layer / "usr/sbin/dmidecode")
    install(GUEST / "systemd-detect-virt", layer / "usr/bin/systemd-detect-virt")
    # Where nfs-common is installed, its program is diverted, and the stand-in takes its place; not before.
    install(GUEST / "mount.shared", layer / kept / "mount.nfs4")
    put = "".join(f"cp /{kept}/mount.nfs4 {path}; " for path in ("/sbin/mount.nfs4", "/sbin/mount.nfs"))
    hook = f"if [ -e /sbin/mount.nfs{DIVERTED} ]; then {put}fi"
    if bare:
        hook += f"; if [ -e {AWS}{DIVERTED} ]; then cp /{kept}/aws {AWS}; fi"
    write(layer / "etc/apt/apt.conf.d/99localcloud", f'DPkg::Post-Invoke {{ "{hook}"; }};\n')


def settings(distribution: Distribution) -> dict[str, Any]:
    """Return what Debian's images for EC2 set of cloud-init."""
    user = {"name": distribution.login_user, "sudo": ["ALL=(ALL) NOPASSWD:ALL"], "shell": "/bin/bash"}
    return {
        "system_info": {"default_user": {**user, "lock_passwd": True, "groups": ["adm", "sudo"]}},
        "datasource_list": ["Ec2"],
        "locale": "C.UTF-8",
    }


def cloud_config(values: Mapping[str, Any]) -> str:
    """Return a file of cloud-init's configuration."""
    return f"#cloud-config\n{json.dumps(values, indent=2)}\n"
