"""Nodes without machines: run the real scripts, each under its own root directory, with fake cloud commands."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

from stacks.user_data import BootSettings, user_data
from tests.waiting import eventually

# Fake commands, found on PATH before the system's. The node that runs them sets $LAB_*.
_COMMANDS = {
    "curl": """
case " $* " in
  *" PUT "*) printf token ;;
  *spot/instance-action*) cat "$DEEPCDK_ROOT/spot" 2>/dev/null || exit 22 ;;
  *target-lifecycle-state*) cat "$DEEPCDK_ROOT/target" 2>/dev/null || exit 22 ;;
  *CFN_V1*) echo "$*" >>"$DEEPCDK_ROOT/signals"; echo "$LAB_DEAF 200" ;;
  *"X-aws-ec2-metadata-token: token"*meta-data/instance-id*) printf %s "$LAB_ID" ;;
  *"X-aws-ec2-metadata-token: token"*local-ipv4*) printf %s "$LAB_IP" ;;
  *"X-aws-ec2-metadata-token: token"*availability-zone*) printf us-east-1a ;;
  *"X-aws-ec2-metadata-token: token"*domain*) printf amazonaws.com ;;
  *"X-aws-ec2-metadata-token: token"*identity/document*) printf '{"instanceId": "%s"}' "$LAB_ID" ;;
  *"X-aws-ec2-metadata-token: token"*identity/signature*) printf 'first\\nsecond\\n' ;;
  *) exit 22 ;;
esac""",
    "mountpoint": '[ "$1" != -d ] || echo 0:52; [ -L "$2" ]',
    "lsblk": 'printf "%s" "$LAB_DISKS"',
    "mdadm": 'echo "mdadm $*" >>"$DEEPCDK_ROOT/disks"',
    "mkfs.xfs": 'echo "mkfs.xfs $*" >>"$DEEPCDK_ROOT/disks"',
    "blkid": "echo 0123-4567",
    "mount": """
echo "$*" >>"$DEEPCDK_ROOT/mounts"
case $* in *--bind*|*noatime*) exit 0 ;; esac
[ -n "$LAB_EFS" ] || exit 32
if [ $# = 1 ]; then # as /etc/fstab says
  grep -q " ${1#"$DEEPCDK_ROOT"} " "$DEEPCDK_ROOT/etc/fstab" || exit 1
  set -- - - - - - "$1"
fi
rmdir "$6" && ln -s "$LAB_EFS" "$6\"""",
    "mount.nfs4": "exit 1",
    "mount.lustre": "exit 1",
    "nft": '[ -z "$LAB_NO_RULES" ] && cat >"$DEEPCDK_ROOT/rules"',
    # Its only program here is `consoles`, which may read the consoles of workers as the master.
    "python3.12": """
[ "${2##*/}" = consoles ] || { echo 3.12; exit; }
folder=$4; shift 4
for id in "$@"; do
  echo "$id" >>"$LAB_CLOUD/consoles"
  if [ "$LAB_ROLE" != master ] || [ ! -e "$LAB_CLOUD/$id" ]; then
    echo "UnauthorizedOperation $id" >"$folder/$id.errors"; continue
  fi
  [ ! -e "$LAB_CLOUD/$id/xen" ] || touch "$folder/$id.xen"
  tail -c 65536 "$LAB_CLOUD/$id/dev/console" 2>/dev/null | tr -d '\\0' >"$folder/$id.console"
done""",
    "g++": "echo 12",
    "make": "exit 0",
    "ssh-keygen": """
while [ $# -gt 0 ]; do [ "$1" = -f ] && key=$2; shift; done
echo "private of $LAB_ID" >"$key"; chmod 600 "$key"; echo "$LAB_KEY deepcdk-master" >"$key.pub\"""",
    "groupadd": 'echo "groupadd $*" >>"$DEEPCDK_ROOT/accounts"',
    "useradd": """
echo "useradd $*" >>"$DEEPCDK_ROOT/accounts"
echo "deepcdk-rank:x:60900:60900::/home/deepcdk-rank:/bin/bash" >>"$DEEPCDK_ROOT/etc/passwd\"""",
    # The ranks' user does not exist on the machine that runs the tests, and the tests may not run as root.
    "chown": 'case $* in *60900*) echo "$*" >>"$DEEPCDK_ROOT/owners"; exit ;; esac; exec /bin/chown "$@"',
    "setsid": 'echo "$*" >>"$DEEPCDK_ROOT/watchers"',
    "systemctl": 'echo "$*" >>"$DEEPCDK_ROOT/systemctl"',
    # The role that may write the parameter.
    "aws": """
case "$*" in
  *put-parameter*) [ "$LAB_ROLE" = master ] && [ -z "$LAB_DENIED" ] || { echo AccessDeniedException >&2; exit 254; }
    while [ $# -gt 0 ]; do [ "$1" = --value ] && printf '%s' "$2" >"$LAB_CLOUD/parameter"; shift; done ;;
  *get-parameter*CFN-RolesHandover*)
    [ "$LAB_ROLE" = master ] && [ -z "$LAB_DENIED" ] || { echo AccessDeniedException >&2; exit 254; }
    cat "$LAB_CLOUD/handover" 2>/dev/null || echo none ;;
  *get-parameter*) echo "$LAB_ID" >>"$LAB_CLOUD/asked"
    [ -z "$LAB_DENIED" ] || { echo AccessDeniedException >&2; exit 254; }
    cat "$LAB_CLOUD/parameter" 2>/dev/null || echo none ;;
esac""",
}
_SIGNAL = 'echo "$*" >>"$DEEPCDK_ROOT/signals"; [ -z "$LAB_DEAF" ] || { echo "$LAB_DEAF"; exit 1; }'

FACTS = ("instance_id", "ip", "slots", "interface", "zone", "gpus", "kind", "host_key")
"""The facts in a node's entry, in order."""


def key_of(name: str) -> str:
    """Return a public key in OpenSSH's format that contains a name."""
    return f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{name:A<43}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One instance: a root directory, and the address and id that its metadata service would return."""

    root: Path
    commands: Path
    role: str
    instance_id: str
    ip: str
    shared: Path | None
    """Directory in place of the shared file system; None: mounting fails."""
    settings: BootSettings

    def environment(self, **changes: str) -> dict[str, str]:
        """Return the environment of the node's scripts."""
        return {
            "PATH": f"{self.commands}:/usr/sbin:/usr/bin:/sbin:/bin",
            "DEEPCDK_ROOT": str(self.root),
            "DEEPCDK_MOUNT_TIMEOUT_S": "0",
            "DEEPCDK_CLAIM_TIMEOUT_S": "0",
            "DEEPCDK_SHARE_TIMEOUT_S": "0",
            "LAB_ID": self.instance_id,
            "LAB_IP": self.ip,
            "LAB_KEY": key_of(f"MASTER{self.instance_id.removeprefix('i-')}"),
            "LAB_EFS": str(self.shared or ""),
            "LAB_CLOUD": str(self.root.parent),
            "LAB_ROLE": self.role,
            "LAB_DENIED": "",
            "LAB_DEAF": "",
            "LAB_DISKS": "",
            "LAB_NO_RULES": "",
            **changes,
        }

    def start(self, **changes: str) -> subprocess.Popen[str]:
        """Start the node's user data, as cloud-init would."""
        program = self.root / "user-data"
        program.write_text(user_data(self.settings), encoding="utf-8")
        return _spawn(["bash", str(program)], self.environment(**changes))

    def boot(self, **changes: str) -> tuple[int, str]:
        """Run the node's user data; return its exit status and output."""
        process = self.start(**changes)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def registry(self, command: str, **changes: str) -> subprocess.Popen[str]:
        """Start the registry script that the boot script installed."""
        return _spawn([str(self.root / "opt/deepcdk/bin/registry"), command], self.environment(**changes))

    def notice(self) -> tuple[int, str]:
        """Run the script that checks for the instance's end once; return its exit status and output."""
        process = _spawn([str(self.root / "opt/deepcdk/bin/notice")], self.environment())
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def refresh(self, **changes: str) -> tuple[int, str]:
        """Run one pass of the registry script."""
        process = self.registry("refresh", **changes)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def forget_watcher(self) -> None:
        """Wait until the boot script has started the watcher in the background, and remove the record of it."""
        eventually((self.root / "watchers").exists)
        (self.root / "watchers").unlink()

    def print_keys(self, key: str = "") -> None:
        """Print this host's key, or another key, to the console, as root on the node can."""
        shown = key or self.text("etc/ssh/ssh_host_ed25519_key.pub").strip()
        with (self.root / "dev/console").open("a") as console:
            console.write(f"-----BEGIN SSH HOST KEY KEYS-----\n{shown}\n-----END SSH HOST KEY KEYS-----\n")

    def text(self, path: str) -> str:
        """Return the text of a file, or nothing if it does not exist."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def files(self) -> dict[str, str]:
        """Return every file that the scripts leave on the node, except the recordings of the fake commands."""
        recorded = {"signals", "mounts", "watchers", "systemctl", "user-data", "accounts", "owners", "rules"}
        found = {str(path.relative_to(self.root)): path for path in self.root.rglob("*") if path.is_file()}
        return {
            name: path.read_text(encoding="utf-8")
            for name, path in found.items()
            if name not in recorded and not name.startswith("mnt/") and name != "dev/console"
        }


class Lab:
    """Create nodes that share one file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.commands = folder / "bin"
        self.commands.mkdir()
        for name, body in _COMMANDS.items():
            _script(self.commands / name, body)

    def node(
        self, role: str, number: int, *, mounts: bool = True, **settings: str | bool | int | tuple[str, ...]
    ) -> Node:
        """Return a new instance with this number in its id and address."""
        instance_id, ip = f"i-{number:017x}", f"10.0.{64 + number // 256}.{number % 256}"
        root = self.folder / instance_id
        for folder in ("etc/ssh", "dev", "proc/net", "proc/sys/net/ipv4", "home/ec2-user", "opt/aws/bin", "var/log"):
            (root / folder).mkdir(parents=True)
        passwd = f"root:x:0:0::/root:/bin/sh\nec2-user:x:{os.getuid()}:{os.getgid()}::/home/ec2-user:/bin/bash\n"
        (root / "etc/passwd").write_text(passwd)
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        (root / "etc/ssh/ssh_host_ed25519_key.pub").write_text(f"{key_of(f'HOST{number}')} root@{instance_id}\n")
        route = "Iface Destination Gateway\nlo 0000007F 0\nens5 00000000 0140000A\n"
        (root / "proc/net/route").write_text(route)
        _script(root / "opt/aws/bin/cfn-signal", _SIGNAL)
        plain = BootSettings(
            role=role,
            stack="deepcdk",
            group="MasterGroup" if role == "master" else "WorkerGroup",
            region="us-east-1",
            file_system="fs-0123456789abcdef0.efs.us-east-1.amazonaws.com",
            efs_mount="/mnt/efs",
            login_user="ec2-user",
            instance_type="c5.2xlarge",
            key_parameter="CFN-RolesAdmittedKey",
            handover_parameter="CFN-RolesHandover" if role == "master" else "",
        )
        return Node(
            root=root,
            commands=self.commands,
            role=role,
            instance_id=instance_id,
            ip=ip,
            shared=self.shared if mounts else None,
            settings=dataclasses.replace(plain, **settings),  # type: ignore[arg-type]  # texts, one truth value and a list
        )

    def owners(self) -> dict[str, str]:
        """Return the instance that holds each name in the registry."""
        files = (path for path in self.shared.glob(".cluster/nodes/*") if path.is_file())
        return {file.name: file.read_text().split(",")[0] for file in files}

    def state(self, name: str, **facts: str) -> None:
        """Write facts into a node's entry, as root on any node can, without changing the age of its heartbeat."""
        path = self.shared / ".cluster/nodes" / name
        values = dict(zip(FACTS, path.read_text().removesuffix("\n").split(",", len(FACTS) - 1), strict=True))
        path.write_text(",".join((values | facts).values()) + "\n")

    def silence(self, name: str, seconds: int = 61) -> None:
        """Set back a node's last heartbeat, and the time of the last search for stale nodes."""
        for path in (f".cluster/nodes/{name}", ".cluster/lock"):
            then = (self.shared / path).stat().st_mtime - seconds
            os.utime(self.shared / path, (then, then))


def booted(node: Node) -> Node:
    """Boot a node that must come up; return it."""
    status, said = node.boot()
    assert status == 0, said
    return node


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body.strip()}\n")
    path.chmod(0o755)


def _spawn(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    )
