"""User data of the nodes: the settings as shell variables, and the packed scripts."""

from __future__ import annotations

import base64
import dataclasses
import re
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stacks.config import MASTER
from stacks.instance_types import find

SCRIPTS: Final = Path(__file__).parent / "scripts"
# EC2's limit on user data, bytes before base64.
USER_DATA_LIMIT: Final = 16384
REFERENCES_BYTES: Final = 400
"""By which references, such as the file system's name, grow once they are resolved."""
# cloud-init, which runs user data, is written in Python, and so the system has one. b85 has no quotes.
_UNPACK: Final = """\
import base64, os, sys, zlib
os.makedirs(sys.argv[1], exist_ok=True)
scripts = zlib.decompress(base64.b85decode(sys.argv[2])).split(b"\\0")
for name, text in zip(sys.argv[3:], scripts):
 path = os.path.join(sys.argv[1], name)
 with open(path + ".new", "wb") as file: file.write(text)
 os.chmod(path + ".new", 0o755)
 os.replace(path + ".new", path)"""
_SIGNAL_S: Final = 120
"""For the start of the instance before its user data runs, and for the signal after a command was stopped."""
# Families with NVIDIA GPUs. Other nodes do not look for any, even if the image has such device files.
_GPU_FAMILY: Final = re.compile(r"(?:p|g|gr)[0-9]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BootSettings:
    """Settings of a node's boot; it finds out everything else itself. Texts may be CDK tokens."""

    role: str
    """`master` or `worker`."""
    stack: str
    """Name of the stack that waits for the node's signal."""
    group: str
    """Logical id of the Auto Scaling group, to which the signal belongs."""
    region: str
    file_system: str
    """DNS name of the shared file system."""
    efs_mount: str
    login_user: str
    instance_type: str
    key_parameter: str
    """Parameter with the public key by which the master logs in on the workers, which the master alone may write."""
    handover_parameter: str = ""
    """On a master: parameter with the digest of what it leaves to its successor, which masters alone may use."""
    compute_capability: str = ""
    """Of the GPUs of all types that the node may have, times ten; empty: without GPUs, or where types differ."""
    agent: str = ""
    """Parameter with the CloudWatch agent's configuration; empty: the node runs none."""
    lustre: str = ""
    """The Lustre file system to mount; empty: none."""
    lustre_mount: str = ""
    scratch: str = ""
    """Directory for the instance store's disks; empty: they stay as the image has them."""
    ranks_have_role: bool = False
    """Let ranks ask the metadata service for the credentials of the node's role."""
    commands: tuple[str, ...] = ()
    """Shell commands of the user's, one line each."""
    ready_s: int = 900
    """Time that CloudFormation waits for the node's signal."""
    heeds_notices: bool = False
    """Watch for the notice of the instance's end, and have ranks save a checkpoint before it."""


def user_data(settings: BootSettings) -> str:
    """Return the shell program that makes an instance a node of the cluster.

    The settings are plain text, since they may be CDK tokens; the scripts are packed, since EC2's limit is small.
    """
    names = _scripts(settings)
    exports = [f"export {key}={shlex.quote(value)}" for key, value in _environment(settings).items()]
    install = [
        "bin=${DEEPCDK_ROOT:-}/opt/deepcdk/bin",
        f"python3 -c '{_UNPACK}' \"$bin\" '{packed(names)}' {' '.join(names)} || exit",
    ]
    return "\n".join(["#!/bin/bash", *exports, *install, 'exec "$bin/node"', ""])


def _scripts(settings: BootSettings) -> tuple[str, ...]:
    """Return the scripts that a node needs; the last one is run and calls the others."""
    chosen = {
        "registry": True,
        "firewall": True,
        settings.role: True,
        "shared": settings.role == MASTER,
        "leftovers": settings.role != MASTER,
        "agent": settings.agent,
        "lustre": settings.lustre,
        "scratch": settings.scratch,
        "notice": settings.heeds_notices,
        "node": True,
    }
    return tuple(name for name, wanted in chosen.items() if wanted)


def packed(names: Sequence[str]) -> str:
    """Return scripts compressed together, as base85: the same text for the same scripts."""
    scripts = "\0".join(map(installed, names))
    return base64.b85encode(zlib.compress(scripts.encode(), 9)).decode()


def installed(name: str) -> str:
    """Return the text of a script as nodes have it."""
    return compact((SCRIPTS / f"{name}.sh").read_text(encoding="utf-8"))


def may_have_gpus(instance_type: str) -> bool:
    """Return whether an EC2 instance type has NVIDIA GPUs; for a type that is not in the table its family decides."""
    kind = find(instance_type)
    return kind.gpu_maker == "NVIDIA" if kind else _GPU_FAMILY.match(instance_type) is not None


def compact(script: str) -> str:
    """Remove a script's blank lines, comment lines and indentation, which count against the limit on user data.

    The `#!` line stays. No script has a text of several lines in which indentation matters.
    """
    lines = [line.lstrip() for line in script.splitlines()]
    kept = [line for line in lines if line and (line.startswith("#!") or not line.startswith("#"))]
    return "\n".join(kept) + "\n"


def _commands(settings: BootSettings) -> dict[str, str]:
    limit_s = max(settings.ready_s - _SIGNAL_S, 1)
    return {"DEEPCDK_COMMANDS": "\n".join(settings.commands), "DEEPCDK_COMMANDS_S": str(limit_s)}


def _environment(settings: BootSettings) -> dict[str, str]:
    lustre = {"DEEPCDK_LUSTRE": settings.lustre, "DEEPCDK_LUSTRE_MOUNT": settings.lustre_mount}
    return {
        "DEEPCDK_ROLE": settings.role,
        "DEEPCDK_STACK": settings.stack,
        "DEEPCDK_GROUP": settings.group,
        "DEEPCDK_REGION": settings.region,
        "DEEPCDK_FILE_SYSTEM": settings.file_system,
        "DEEPCDK_EFS_MOUNT": settings.efs_mount,
        "DEEPCDK_LOGIN_USER": settings.login_user,
        "DEEPCDK_KEY_PARAMETER": settings.key_parameter,
        **({"DEEPCDK_HANDOVER_PARAMETER": parameter} if (parameter := settings.handover_parameter) else {}),
        "DEEPCDK_GPUS": "true" if may_have_gpus(settings.instance_type) else "false",
        **({"DEEPCDK_COMPUTE_CAPABILITY": capability} if (capability := settings.compute_capability) else {}),
        **({"DEEPCDK_AGENT": settings.agent} if settings.agent else {}),
        **(lustre if settings.lustre else {}),
        **({"DEEPCDK_SCRATCH": settings.scratch} if settings.scratch else {}),
        **(_commands(settings) if settings.commands else {}),
        **({"DEEPCDK_FIREWALL": "role"} if settings.ranks_have_role else {}),
    }
