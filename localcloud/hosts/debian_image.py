"""Debian's images: a root file system with the packages of Debian's own image for EC2, cloud-init among them.

It is made once by mmdebstrap from the archive that mmdebstrap finds by itself, and kept in the user's cache. Hosts of
such an image have it below their own layer, in place of this machine's root.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from localcloud.errors import LocalCloudError
from localcloud.hosts.binds import Bind
from localcloud.hosts.images import Image
from localcloud.hosts.machine_image import GUEST, SHARED_MOUNTS, install, make_devices, make_mount_point, write

OWNER: Final = "136693071363"
"""The account that publishes Debian's images (Debian wiki, Cloud/AmazonEC2Image)."""
ROOT_DEVICE: Final = "/dev/xvda"
DIVERTED: Final = ".debian"
"""What the name of a program of a package ends with where a stand-in has its place."""

# The classes BASE, CLOUD, EC2, EXTRAS and SYSTEM_BOOT of Debian's cloud team (salsa.debian.org/cloud-team/
# debian-cloud-images, config_space/bookworm/package_config), without what boots a kernel, keeps its clock or manages
# its network: hosts have none of these of their own. amazon-ec2-utils makes names of disks, of which they have none.
_PACKAGES: Final = (
    *("apt-utils", "init", "iptables", "iputils-ping", "less", "nano", "netbase", "vim-tiny", "whiptail"),
    *("awscli", "cloud-init", "cloud-guest-utils", "openssh-server", "ssh-import-id"),
    *("bash-completion", "bind9-host", "ca-certificates", "curl", "ethtool", "pciutils", "psmisc", "screen", "socat"),
    *("dbus", "iproute2", "libnss-myhostname", "libpam-systemd", "polkitd", "procps", "sudo", "uuid-runtime"),
    *("xz-utils", "zstd"),
)
# Programs that need a stand-in, and whose packages keep theirs beside it: the AWS CLI of Debian 12 is older than
# AWS_ENDPOINT_URL, and no kernel mounts NFS in a namespace from a server that is none.
_DIVERSIONS: Final = (
    "/usr/bin/aws",
    "/usr/bin/systemd-detect-virt",
    "/sbin/mount.nfs4",
    "/usr/sbin/mount.nfs4",
    "/sbin/mount.nfs",
    "/usr/sbin/mount.nfs",
)


class ImageError(LocalCloudError):
    """Report an image that could not be made."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distribution:
    """A release of Debian with an image on EC2."""

    name: str
    """As `start --image` takes it: debian-12."""
    suite: str
    login_user: str = "admin"

    @property
    def parameter(self) -> str:
        """Return the public SSM parameter that holds the id of the release's newest image."""
        return f"/aws/service/debian/release/{self.name.removeprefix('debian-')}/latest/amd64"

    @property
    def ami_name(self) -> str:
        """Return the name of the image, which begins as Debian's do (debian-12-amd64-20250814-2204)."""
        return f"{self.name}-amd64-embedded"

    def command(self, target: Path) -> list[str]:
        """Return the command that makes the root in the directory `target`."""
        divert = 'chroot "$1" dpkg-divert --quiet --local --rename --divert {0}{1} --add {0}'
        hooks = [divert.format(path, DIVERTED) for path in _DIVERSIONS]
        return [
            *("mmdebstrap", "--variant=minbase", "--mode=root", "--quiet", f"--include={','.join(_PACKAGES)}"),
            *(f"--customize-hook={hook}" for hook in hooks),
            *(self.suite, str(target)),
        ]

    def directory(self, cache: Path) -> Path:
        """Return where the root is kept; another list of packages has another place."""
        made_by = "\0".join(self.command(Path()))
        return cache / f"{self.name}-{hashlib.sha256(made_by.encode()).hexdigest()[:12]}"


DISTRIBUTIONS: Final = {
    each.name: each
    for each in (Distribution(name="debian-12", suite="bookworm"), Distribution(name="debian-13", suite="trixie"))
}


def default_cache(environment: Mapping[str, str]) -> Path:
    """Return the directory in which roots are kept."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "localcloud"


def root_of(distribution: Distribution, cache: Path) -> Path:
    """Return the root of a distribution, made first where it is not there: a minute, and 500 MB from Debian's archive.

    Raises ImageError with what mmdebstrap said.
    """
    directory = distribution.directory(cache)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():
            _make(distribution, directory)
    return directory


def _make(distribution: Distribution, directory: Path) -> None:
    if shutil.which("mmdebstrap") is None:
        raise ImageError(
            f"--image {distribution.name} needs mmdebstrap, which makes Debian's root file system; "
            "on Debian or Ubuntu: apt-get install mmdebstrap"
        )
    print(f"making the root of {distribution.name} with mmdebstrap, once: {directory}", file=sys.stderr, flush=True)
    new = directory.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    done = subprocess.run(distribution.command(new), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        shutil.rmtree(new, ignore_errors=True)
        said = "\n".join(done.stderr.decode(errors="replace").splitlines()[-15:])
        raise ImageError(f"mmdebstrap could not make {distribution.name}:\n{said}")
    new.chmod(0o755)
    new.rename(directory)


def archive_hosts(root: Path) -> frozenset[str]:
    """Return the names of the hosts that a root's apt takes packages from."""
    files = [root / "etc/apt/sources.list", *(root / "etc/apt/sources.list.d").glob("*.[ls]*")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return frozenset(re.findall(r"https?://([a-z0-9.-]+)", "\n".join(lines)))


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
    write(layer / "etc/cloud/cloud.cfg.d/01_debian_cloud.cfg", _cloud_config(distribution))
    _stand_in(layer)
    return Image(lower=(layer, root), boot="boot_cloud_init", environment=environment, binds=binds, accounts=False)


def _stand_in(layer: Path) -> None:
    """Put the stand-ins where the programs are whose names are diverted."""
    aws = f'#!/bin/sh\nexec /usr/bin/aws{DIVERTED} --endpoint-url "$AWS_ENDPOINT_URL" "$@"\n'
    write(layer / "usr/bin/aws", aws, mode=0o755)
    install(GUEST / "dmidecode", layer / "usr/sbin/dmidecode")
    install(GUEST / "systemd-detect-virt", layer / "usr/bin/systemd-detect-virt")
    # Where nfs-common is installed, its program is diverted, and the stand-in takes its place; not before.
    install(GUEST / "mount.nfs4", layer / "usr/lib/localcloud/mount.nfs4")
    put = "".join(f"cp /usr/lib/localcloud/mount.nfs4 {path}; " for path in ("/sbin/mount.nfs4", "/sbin/mount.nfs"))
    hook = f"if [ -e /sbin/mount.nfs{DIVERTED} ]; then {put}fi"
    write(layer / "etc/apt/apt.conf.d/99localcloud", f'DPkg::Post-Invoke {{ "{hook}"; }};\n')


def _cloud_config(distribution: Distribution) -> str:
    """Return what Debian's images for EC2 set, and what a host without hardware needs."""
    user = {"name": distribution.login_user, "sudo": ["ALL=(ALL) NOPASSWD:ALL"], "shell": "/bin/bash"}
    config = {
        "system_info": {"default_user": {**user, "lock_passwd": True, "groups": ["adm", "sudo"]}},
        "datasource_list": ["Ec2"],
        # The links are up when it starts.
        "datasource": {"Ec2": {"apply_network_config": False}},
        "network": {"config": "disabled"},
        "locale": "C.UTF-8",
    }
    return f"#cloud-config\n{json.dumps(config, indent=2)}\n"
