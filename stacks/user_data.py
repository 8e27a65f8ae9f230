"""User data of the nodes: settings as shell variables, and the packed scripts."""

from __future__ import annotations

import base64
import dataclasses
import re
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stacks.config import MASTER, WORKER
from stacks.instance_types import find

SCRIPTS: Final = Path(__file__).parent / "scripts"
_SOURCES: Final = {
    "node": "boot",
    "registry": "node_registry",
    MASTER: "node_registry_master",
    WORKER: "node_registry_worker",
    "shared": "master_setup",
    "leftovers": "rank_leftovers",
    "agent": "cloudwatch_agent",
    "notice": "termination_notice",
}
"""Sources of scripts that have a shorter name on the nodes."""
# EC2's limit on user data, bytes before base64.
USER_DATA_LIMIT: Final = 16384
REFERENCES_BYTES: Final = 400
"""Additional bytes after references, such as the file system's name, are resolved."""
# The system has a Python, because cloud-init, which runs user data, needs one. base85 text contains no quotes.
_UNPACK: Final = """\
import base64, os, sys, zlib
os.makedirs(sys.argv[1], exist_ok=True)
scripts = zlib.decompress(base64.b85decode(sys.argv[2])).split(b"\\0")
for name, text in zip(sys.argv[3:], scripts):
 path = f"{sys.argv[1]}/{name}"
 new = path + ".new"
 with open(new, "wb") as file: file.write(text)
 os.chmod(new, 0o755)
 os.replace(new, path)"""
_SIGNAL_S: Final = 120
"""Time for the instance to start before its user data runs, and for the signal after a command was stopped."""
# Families with NVIDIA GPUs. Other nodes do not look for GPUs, even if the image has device files for them.
_GPU_FAMILY: Final = re.compile(r"(?:p|g|gr)[0-9]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BootSettings:
    """Settings of a node's boot. The node detects everything else itself. Texts may be CDK tokens."""

    role: str
    """`master` or `worker`."""
    stack: str
    """Name of the stack that waits for the node's signal."""
    group: str
    """Logical ID of the Auto Scaling group that receives the signal."""
    region: str
    file_system: str
    """DNS name of the shared file system."""
    efs_mount: str
    login_user: str
    instance_type: str
    key_parameter: str
    """Parameter with the public key that the master uses to log in on workers. Only the master may write it."""
    handover_parameter: str = ""
    """On a master: parameter with the digest of the data for its successor. Only masters may access it."""
    compute_capability: str = ""
    """Compute capability of all possible types' GPUs, multiplied by ten; empty without GPUs, or if they differ."""
    agent: str = ""
    """Parameter with the CloudWatch agent's configuration; empty: the node runs no agent."""
    lustre: str = ""
    """The Lustre file system to mount; empty: none."""
    lustre_mount: str = ""
    scratch: str = ""
    """Directory to mount the instance store's disks on; empty: they stay as the image leaves them."""
    ranks_have_role: bool = False
    """Whether ranks may get the credentials of the node's role from the metadata service."""
    commands: tuple[str, ...] = ()
    """The user's shell commands, one line each."""
    ready_s: int = 900
    """How long CloudFormation waits for the node's signal."""
    heeds_notices: bool = False
    """Whether to watch for a notice that the instance will be terminated, and then make ranks save a checkpoint."""


def user_data(settings: BootSettings) -> str:
    """Return the shell program that makes an instance a node of the cluster.

    The settings are plain text, because they may be CDK tokens. The scripts are packed, because EC2's limit is small.
    """
    names = _scripts(settings)
    exports = [f"export {key}={shlex.quote(value)}" for key, value in _environment(settings).items()]
    install = [
        "bin=${DEEPCDK_ROOT:-}/opt/deepcdk/bin",
        f"python3 -c '{_UNPACK}' \"$bin\" '{packed(names)}' {' '.join(names)} || exit",
    ]
    return "\n".join(["#!/bin/bash", *exports, *install, 'exec "$bin/node"', ""])


def _scripts(settings: BootSettings) -> tuple[str, ...]:
    """Return the names of the scripts that a node needs. The last script is the one to run; it calls the others."""
    chosen = {
        "registry": True,
        "firewall": True,
        settings.role: True,
        "shared": settings.role == MASTER,
        "consoles": settings.role == MASTER,
        "leftovers": settings.role != MASTER,
        "agent": settings.agent,
        "lustre": settings.lustre,
        "scratch": settings.scratch,
        "notice": settings.heeds_notices,
        "node": True,
    }
    return tuple(name for name, wanted in chosen.items() if wanted)


def packed(names: Sequence[str]) -> str:
    """Return the scripts with these names compressed together, as base85. Equal scripts give the same text."""
    scripts = "\0".join(map(installed, names))
    return base64.b85encode(zlib.compress(scripts.encode(), 9)).decode()


def installed(name: str) -> str:
    """Return the text of a script as it is installed on nodes, after `compact`. `name` is its name on the nodes."""
    source = _SOURCES.get(name, name)
    python = SCRIPTS / f"{source}.py"
    script = python if python.exists() else SCRIPTS / f"{source}.sh"
    return compact(script.read_text(encoding="utf-8"), indented=script == python)


def may_have_gpus(instance_type: str) -> bool:
    """Return whether an instance type has NVIDIA GPUs. For a type that is not in the table, its family decides."""
    kind = find(instance_type)
    return kind.gpu_maker == "NVIDIA" if kind else _GPU_FAMILY.match(instance_type) is not None


def compact(script: str, *, indented: bool = False) -> str:
    """Return a script without blank lines, comment lines and indentation, which count against the limit on user data.

    The `#!` line is kept. With `indented`, for Python, four spaces of indentation become one. Shell scripts must not
    contain multi-line text that depends on indentation.
    """
    lines = [(line.lstrip(), (len(line) - len(line.lstrip())) // 4 * indented) for line in script.splitlines()]
    kept = [" " * depth + line for line, depth in lines if line and (line.startswith("#!") or not line.startswith("#"))]
    return "\n".join(kept) + "\n"


def _commands(settings: BootSettings) -> dict[str, str]:
    limit_s = max(settings.ready_s - _SIGNAL_S, 1)
    return {"DEEPCDK_COMMANDS": "\n".join(settings.commands), "DEEPCDK_COMMANDS_S": str(limit_s)}


def _environment(settings: BootSettings) -> dict[str, str]:
    """Return the environment variables for the node's scripts. Those of features that the node lacks are left out."""
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
