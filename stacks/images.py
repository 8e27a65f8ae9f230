"""Machine images: choose one for an instance type, and derive an image's properties from its SSM parameter's name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from stacks.config import WORKER, ClusterConfig
from stacks.instance_types import InstanceType, find

# Amazon Linux 2023 (its user guide, "Launching AL2023 using the SSM parameter and AWS CLI").
AMAZON_LINUX: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{architecture}"
# Deep Learning Base OSS Nvidia Driver GPU AMI on Amazon Linux 2023 (the DLAMI developer guide's release notes name the
# parameter and the instance types: G4dn to G7e, P4d to P6 on x86_64; G5g and P6e on arm64).
DEEP_LEARNING: Final = (
    "/aws/service/deeplearning/ami/{architecture}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"
)
# Size of the snapshot of DEEP_LEARNING. A volume made from it cannot be smaller.
DEEP_LEARNING_GIB: Final = 75
# Space that a node's runtime needs while it is installed: on a worker with GPUs 7.1 GB and 3.3 GB of packages (see
# docs/horovod.md, "GPUs"), on other workers 2.1 GB and a compiler. A program's own packages need more.
GPU_RUNTIME_GIB: Final = 10
RUNTIME_GIB: Final = 4
# NVIDIA's open kernel modules, which DEEP_LEARNING contains, support GPUs since Turing (2018).
OLDER_THAN_OPEN_DRIVER: Final = frozenset({"K80", "M60", "V100"})

# EC2's names of architectures, by the names that image publishers use.
_ARCHITECTURES: Final = {"x86_64": "x86_64", "amd64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}
# On these releases the boot installs no Python from 3.11 to 3.13, the versions that TensorFlow and Horovod are locked
# for. Each has its own version of Python (packages.ubuntu.com, packages.debian.org, AWS's "Python in Amazon Linux"),
# and a pattern for its names in parameters.
_OTHER_PYTHONS: Final[Mapping[str, tuple[str, str]]] = {
    "Ubuntu 18.04": ("3.6", r"18\.04|bionic"),
    "Ubuntu 20.04": ("3.8", r"20\.04|focal"),
    "Ubuntu 22.04": ("3.10", r"22\.04|jammy"),
    "Ubuntu 26.04": ("3.14", r"26\.04|resolute"),
    "Debian 11": ("3.9", r"11|bullseye"),
    "Amazon Linux 2": ("3.7", r"amzn2|amazon-linux-2"),
}
# Publishers of plain images, which have no NVIDIA driver.
_PLAIN: Final = ("/aws/service/ami-amazon-linux-latest/", "/aws/service/canonical/", "/aws/service/debian/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Image:
    """A machine image in a launch template, given by an SSM parameter or by its ID."""

    parameter: str
    """Name of the SSM parameter that contains the image's ID; empty for an image given by its ID."""
    id: str
    """`ami-...`; empty: the deployment reads it from the parameter."""
    root_device: str
    """Device name of the root volume. Only a mapping with this name changes that volume's size and encryption."""


def image(config: ClusterConfig, role: str, kept: Mapping[str, str] | None = None) -> Image:
    """Return the image of a role: given by ID or by parameter, else the default image for the instance type.

    `kept` maps parameters to image IDs. A deployed cluster keeps these images, although the parameters may have newer
    ones.
    """
    id = getattr(config, f"{role}_image_id")
    named = "" if id else choose(getattr(config, f"{role}_image_parameter"), getattr(config, f"{role}_instance_type"))
    device = getattr(config, f"{role}_root_device") or default_root_device(named)
    return Image(parameter=named, id=id or (kept or {}).get(named, ""), root_device=device)


def choose(given: str, instance_type: str) -> str:
    """Return the SSM parameter `given` of an image, or if it is "", the default for the instance type.

    If no image is known to fit, the result is Amazon Linux's image for x86_64, which has no GPU driver.
    """
    return given or default(find(instance_type)) or AMAZON_LINUX.format(architecture="x86_64")


def default(kind: InstanceType | None) -> str:
    """Return the SSM parameter of the default image for an instance type; "" if no image is known to fit."""
    if kind is None or kind.gpu_name in OLDER_THAN_OPEN_DRIVER or kind.gpu_maker not in ("", "NVIDIA"):
        return ""
    for supported in kind.architectures:
        if supported in _ARCHITECTURES.values():
            return (DEEP_LEARNING if kind.gpus else AMAZON_LINUX).format(architecture=supported)
    return ""


def architecture(parameter: str) -> str:
    """Return the architecture in an image parameter's name (`x86_64`, `arm64`); "" unless it names exactly one."""
    named = {_ARCHITECTURES[word] for word in re.findall(r"x86_64|amd64|arm64|aarch64", parameter)}
    return named.pop() if len(named) == 1 else ""


def lacks_gpu_driver(parameter: str) -> bool:
    """Return whether the image is known to have no NVIDIA driver.

    False for an image given by its ID, with `parameter` "".
    """
    return parameter.startswith(_PLAIN)


def has_open_gpu_driver(parameter: str) -> bool:
    """Return whether the image is known to have NVIDIA's open kernel modules; False for an image given by its ID."""
    return parameter.startswith("/aws/service/deeplearning/") and "oss-nvidia-driver" in parameter


def release_without_python(parameter: str) -> str:
    """Return the release of an image on which the boot is known to install no suitable Python, else "".

    The result is for messages: `Ubuntu 22.04 (Python 3.10)`. `parameter` is the image's SSM parameter, or "" for an
    image given by its ID.
    """
    if not parameter.startswith("/aws/service/"):
        return ""
    for name, (python, words) in _OTHER_PYTHONS.items():
        if re.search(rf"[/_-](?:{words})(?:[/_-]|$)", parameter):
            return f"{name} (Python {python})"
    return ""


def smallest_volume_gib(parameter: str) -> int:
    """Return the size of the smallest root volume for the image, GiB; 8 if it is unknown."""
    return DEEP_LEARNING_GIB if parameter.startswith("/aws/service/deeplearning/") else 8


def runtime_gib(role: str, instance_type: str) -> int:
    """Return the space that a node's runtime needs besides its image, GiB. Unknown worker types may have GPUs."""
    kind = find(instance_type)
    return GPU_RUNTIME_GIB if role == WORKER and (kind is None or kind.gpus) else RUNTIME_GIB


def login_user(parameter: str) -> str:
    """Return the login user that the image's publisher has set up; ec2-user unless it is an Ubuntu or Debian image."""
    return "ubuntu" if "ubuntu" in parameter else "admin" if "/debian/" in parameter else "ec2-user"


def default_root_device(parameter: str) -> str:
    """Return the device name of an image's root volume: /dev/sda1 for Ubuntu, otherwise /dev/xvda."""
    return "/dev/sda1" if "ubuntu" in parameter else "/dev/xvda"
