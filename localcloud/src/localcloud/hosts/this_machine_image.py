"""The layer that turns this machine's root into a node's: hidden files, login users, stand-in programs."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from localcloud.hosts.images import AWS_CLI, Bind, Image, interpreter_binds

GUEST: Final = Path(__file__).parent.parent / "guest"
LOGIN_USERS: Final = ("ec2-user", "ubuntu")
"""The login users of Amazon's and Ubuntu's images, with user ids from 1000."""

SHARED_MOUNTS: Final = ("run/localcloud/efs", "run/localcloud/nfs")
"""Mount points of the shared directory: directly, and through the caches of an NFS client."""

# Directories that a node shares with the machine. All others at the top level are hidden.
_SHARED: Final = frozenset({"usr", "etc", "var", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "gnu"})
# Directories that are empty on a node, with their modes.
_EMPTY: Final = {
    "boot": 0o755,
    "dev": 0o755,
    "home": 0o755,
    "media": 0o755,
    "mnt": 0o755,
    "opt": 0o755,
    "proc": 0o555,
    "root": 0o700,
    "run": 0o755,
    "srv": 0o755,
    "sys": 0o555,
    "tmp": 0o1777,
    "etc/profile.d": 0o755,
    "etc/sudoers.d": 0o750,
    "etc/cron.d": 0o755,
    "var/backups": 0o755,
    "var/cache": 0o755,
    "var/local": 0o755,
    "var/log": 0o755,
    "var/mail": 0o755,
    "var/spool": 0o755,
    "var/tmp": 0o1777,
}
# Package databases. The state of other programs is hidden.
_SHARED_STATE: Final = frozenset({"dpkg", "rpm", "apt", "pam", "misc"})
# The machine's identity, and settings that may contain secrets.
_HIDDEN: Final = (
    "etc/machine-id",
    "etc/pip.conf",
    "etc/npmrc",
    "etc/netrc",
    "etc/krb5.keytab",
    "etc/ssl/private",
    "etc/ssh/ssh_host_*",
    "etc/ssh/ssh_config.d",
    "etc/ssh/sshd_config.d",
    "etc/ssh/ssh_known_hosts",
)
_DEVICES: Final = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_DEVICE_LINKS: Final = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}


def build(layer: Path, binds: Sequence[Bind], environment: Mapping[str, str]) -> Image:
    """Fill the empty directory `layer` with all differences between this machine's root and a host's; return the image.

    Needs root. The layer is on a separate file system. `environment` contains the variables of every process of the
    hosts.
    """
    _hide(layer)
    make_devices(layer / "dev")
    _accounts(layer)
    for directory in (
        *SHARED_MOUNTS,
        "run/lock",
        "run/sshd",
        "var/lib/cloud/instance",
        ".machine",
    ):
        (layer / directory).mkdir(parents=True, exist_ok=True)
    for directory in SHARED_MOUNTS:
        (layer / directory).chmod(0o700)
    (layer / "run/localcloud").chmod(0o755)
    install(GUEST / "mount.shared", layer / "usr/sbin/mount.nfs4")
    _link(layer / "usr/sbin/mount.nfs", "mount.nfs4")
    _link(layer / "usr/sbin/mount.lustre", "mount.nfs4")
    install(GUEST / "cfn-signal", layer / "opt/aws/bin/cfn-signal")
    _cloudwatch_agent(layer)
    lines = [f"{key}={value}" for key, value in sorted(environment.items())]
    write(layer / "etc/environment", "".join(f"{line}\n" for line in lines))
    sshd_config = (GUEST / "sshd_config").read_text(encoding="utf-8")
    write(layer / "etc/ssh/sshd_config", f"{sshd_config}SetEnv {' '.join(lines)}\n")
    _interpreter(layer)
    if any(bind.target == AWS_CLI for bind in binds):
        # A garbage collection after 700 new objects, Python's default, would cost a sixth of the CPU time of a call.
        program = (
            'import gc, sys; gc.set_threshold(100000); sys.argv[0] = "aws"; '
            "import awscli.clidriver; sys.exit(awscli.clidriver.main())"
        )
        wrapper = f"#!/bin/sh\nPYTHONPATH={AWS_CLI} exec {_python()} -c '{program}' \"$@\"\n"
        write(layer / "usr/bin/aws", wrapper, mode=0o755)
    for bind in binds:
        make_mount_point(layer, bind.target)
    return Image(lower=(layer, Path("/")), boot="boot_machine", environment=environment, binds=tuple(binds))


def _hide(layer: Path) -> None:
    """Hide the machine's other directories, state and secrets from hosts.

    Directories that a node also has, such as /home and /var/log, are empty.
    """
    for directory, mode in _EMPTY.items():
        path = layer / directory
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        os.setxattr(path, "trusted.overlay.opaque", b"y")
    for entry in Path("/").iterdir():
        if entry.name not in _SHARED and entry.name not in _EMPTY:
            _whiteout(layer / entry.name)
    for entry in Path("/var/lib").iterdir():
        if entry.name not in _SHARED_STATE:
            _whiteout(layer / "var/lib" / entry.name)
    for pattern in _HIDDEN:
        for entry in Path("/").glob(pattern):
            _whiteout(layer / entry.relative_to("/"))


def _whiteout(path: Path) -> None:
    """Hide the lower layer's entry at this path. In an overlay, the character device 0:0 marks a deleted entry."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def make_devices(directory: Path) -> None:
    """Create the devices of a host in `directory`, which becomes its /dev. Needs root."""
    directory.mkdir(exist_ok=True)
    for name, (major, minor) in _DEVICES.items():
        os.mknod(directory / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (directory / name).chmod(0o666)
    for name, target in _DEVICE_LINKS.items():
        _link(directory / name, target)
    for name in ("pts", "shm"):
        (directory / name).mkdir()
    (directory / "console").touch(mode=0o600)


def _accounts(layer: Path) -> None:
    """Write the machine's system accounts, without passwords, and the login users with their homes and sudo rights."""
    etc = Path("/etc")
    users = [line for line in (etc / "passwd").read_text(encoding="utf-8").splitlines() if _is_system(line)]
    groups = [line for line in (etc / "group").read_text(encoding="utf-8").splitlines() if _is_system(line)]
    groups = [":".join([*line.split(":")[:3], ""]) for line in groups]
    for number, user in enumerate(LOGIN_USERS, start=1000):
        users.append(f"{user}:x:{number}:{number}::/home/{user}:/bin/bash")
        groups.append(f"{user}:x:{number}:")
        home = layer / "home" / user
        (home / ".ssh").mkdir(parents=True)
        skeleton = {p.name: p for p in (etc / "skel").glob(".*") if p.is_file()}
        for name, source in skeleton.items():
            shutil.copyfile(source, home / name)
        for path in (home, home / ".ssh", *(home / name for name in skeleton)):
            os.chown(path, number, number)
        home.chmod(0o700)
        (home / ".ssh").chmod(0o700)
    write(layer / "etc/passwd", "".join(f"{line}\n" for line in users))
    write(layer / "etc/group", "".join(f"{line}\n" for line in groups))
    # With an asterisk no password is valid, but the account is not locked, so that logins with keys work.
    write(layer / "etc/shadow", "".join(f"{line.split(':')[0]}:*:19000:0:99999:7:::\n" for line in users), mode=0o640)
    write(layer / "etc/gshadow", "".join(f"{line.split(':')[0]}:*::\n" for line in groups), mode=0o640)
    for name in ("subuid", "subgid"):
        write(layer / "etc" / name, "")
    sudoers = "".join(f"{user} ALL=(ALL) NOPASSWD:ALL\n" for user in LOGIN_USERS)
    write(layer / "etc/sudoers.d/90-cloud-init-users", sudoers, mode=0o440)


def _is_system(line: str) -> bool:
    fields = line.split(":")
    return len(fields) >= 3 and fields[2].isdigit() and (int(fields[2]) < 1000 or int(fields[2]) == 65534)


def _interpreter(layer: Path) -> None:
    """Make this Python available as python3.X, if it is not the machine's own."""
    if interpreter_binds():
        _link(layer / "usr/local/bin" / Path(_python()).name, _python())


def _cloudwatch_agent(layer: Path) -> None:
    """Install the stand-in for the CloudWatch agent at the path of Amazon's package."""
    home = "opt/aws/amazon-cloudwatch-agent"
    for source in sorted((GUEST / "cloudwatch_agent").glob("*.py")):
        install(source, layer / home / "lib/cloudwatch_agent" / source.name)
    wrapper = f'#!/bin/sh\nPYTHONPATH=/{home}/lib exec {_python()} -m cloudwatch_agent "$@"\n'
    (layer / home / "bin").mkdir()
    write(layer / home / "bin/amazon-cloudwatch-agent-ctl", wrapper, mode=0o755)


def _python() -> str:
    return str(Path(sys.base_prefix).resolve() / f"bin/python3.{sys.version_info.minor}")


def make_mount_point(layer: Path, target: str) -> None:
    """Create the mount point of a bind in a layer. Every user may enter its parent directories."""
    path = layer
    for part in target.strip("/").split("/"):
        path /= part
        path.mkdir(exist_ok=True)
        if path.is_relative_to(layer / "root") or path.is_relative_to(layer / "home"):
            path.chmod(path.stat().st_mode | 0o011)


def install(source: Path, target: Path) -> None:
    """Copy a program to the executable file `target`, and create its parent directories."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file with this mode, and create its parent directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
