"""Debian's images: a root file system with the packages of Debian's own image for EC2, including cloud-init.

mmdebstrap creates it once, from its default archive, and it stays in the user's cache. Hosts with such an image have it
below their own layer, instead of this machine's root.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from localcloud.hosts.debian_root import DIVERTED, Root
from localcloud.hosts.images import Bind, Image
from localcloud.hosts.this_machine_image import GUEST, SHARED_MOUNTS, install, make_devices, make_mount_point, write

OWNER: Final = "136693071363"
"""The account that publishes Debian's images (Debian wiki, Cloud/AmazonEC2Image)."""
ROOT_DEVICE: Final = "/dev/xvda"

# The classes BASE, CLOUD, EC2, EXTRAS and SYSTEM_BOOT of Debian's cloud team (salsa.debian.org/cloud-team/
# debian-cloud-images, config_space/bookworm/package_config), without packages that boot a kernel, set its clock or
# manage its network: hosts in namespaces share these with the machine. amazon-ec2-utils names disks, which hosts do not
# have.
PACKAGES: Final = (
    *("apt-utils", "init", "iptables", "iputils-ping", "less", "nano", "netbase", "vim-tiny", "whiptail"),
    *("awscli", "cloud-init", "cloud-guest-utils", "openssh-server", "ssh-import-id"),
    *("bash-completion", "bind9-host", "ca-certificates", "curl", "ethtool", "pciutils", "psmisc", "screen", "socat"),
    *("dbus", "iproute2", "libnss-myhostname", "libpam-systemd", "polkitd", "procps", "sudo", "uuid-runtime"),
    *("xz-utils", "zstd"),
)
AWS: Final = "/usr/bin/aws"
AWS_STAND_IN: Final = f'#!/bin/sh\nexec {AWS}{DIVERTED} --endpoint-url "$AWS_ENDPOINT_URL" "$@"\n'
# Programs that are replaced; `dpkg-divert` moves the packages' versions aside. Debian 12's AWS CLI is older than
# AWS_ENDPOINT_URL, and the NFS server is only a directory, which no kernel can mount as NFS.
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
    """Name for `start --image`, such as debian-12."""
    suite: str
    login_user: str = "admin"
    bare: bool = False
    """Whether it lacks the AWS CLI, like Canonical's images. No image has git, a compiler, headers or python3-venv."""

    @property
    def release(self) -> str:
        """Return Debian's name of the release, such as debian-12."""
        return self.name.removesuffix("-bare")

    @property
    def parameter(self) -> str:
        """Return the name of the public SSM parameter that contains the id of the release's newest image."""
        return f"/aws/service/debian/release/{self.release.removeprefix('debian-')}/latest/amd64"

    @property
    def ami_name(self) -> str:
        """Return the name of the image. It begins like Debian's (debian-12-amd64-20250814-2204)."""
        return f"{self.release}-amd64-embedded"

    @property
    def root(self) -> Root:
        """Return the description of its hosts' root file system. `debian_root.root_of` creates the files."""
        packages = tuple(name for name in PACKAGES if not (self.bare and name == "awscli"))
        return Root(name=self.name, suite=self.suite, packages=packages, diversions=_DIVERSIONS)


# Settings for a host without hardware, whose links are up when cloud-init starts.
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
    """Fill the empty directory `layer` with replaced programs and settings; return the image: this layer over `root`.

    Needs root. `environment` contains the variables of every process of the hosts.
    """
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
    # A host does not survive this machine, so dpkg need not wait for each file to be on the disk.
    write(layer / "etc/dpkg/dpkg.cfg.d/localcloud", "force-unsafe-io\n")
    _stand_in(layer, bare=distribution.bare)
    return Image(lower=(layer, root), boot="boot_cloud_init", environment=environment, binds=binds, accounts=False)


def _stand_in(layer: Path, *, bare: bool) -> None:
    """Install the stand-ins at the paths of the diverted programs, or for a hook that runs after apt installs them."""
    kept = Path("usr/lib/localcloud")
    write(layer / (kept / "aws" if bare else AWS.strip("/")), AWS_STAND_IN, mode=0o755)
    install(GUEST / "dmidecode", layer / "usr/sbin/dmidecode")
    install(GUEST / "systemd-detect-virt", layer / "usr/bin/systemd-detect-virt")
    # Installing nfs-common diverts its program. Only then does the hook copy the stand-in to its place.
    install(GUEST / "mount.shared", layer / kept / "mount.nfs4")
    put = "".join(f"cp /{kept}/mount.nfs4 {path}; " for path in ("/sbin/mount.nfs4", "/sbin/mount.nfs"))
    hook = f"if [ -e /sbin/mount.nfs{DIVERTED} ]; then {put}fi"
    if bare:
        hook += f"; if [ -e {AWS}{DIVERTED} ]; then cp /{kept}/aws {AWS}; fi"
    write(layer / "etc/apt/apt.conf.d/99localcloud", f'DPkg::Post-Invoke {{ "{hook}"; }};\n')


def settings(distribution: Distribution) -> dict[str, Any]:
    """Return cloud-init's settings of Debian's images for EC2."""
    user = {"name": distribution.login_user, "sudo": ["ALL=(ALL) NOPASSWD:ALL"], "shell": "/bin/bash"}
    return {
        "system_info": {"default_user": {**user, "lock_passwd": True, "groups": ["adm", "sudo"]}},
        "datasource_list": ["Ec2"],
        "locale": "C.UTF-8",
    }


def cloud_config(values: Mapping[str, Any]) -> str:
    """Return the text of a cloud-init configuration file."""
    return f"#cloud-config\n{json.dumps(values, indent=2)}\n"
