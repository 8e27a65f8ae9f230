"""EFA devices of a node, and the libfabric plug-in that NCCL uses them with. Not tested on EFA.

NCCL loads the plug-in as libnccl-net.so from the loader's path. Images set that path in a login shell's profile, which
ranks do not read. Without the path, NCCL silently uses TCP (as in NVIDIA-NeMo/RL#2359). Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

EFA_DRIVER: Final = "efa"
PLUGIN: Final = "libnccl-net.so"
PLUGIN_FOLDERS: Final = ("opt/amazon/ofi-nccl", "opt/amazon/aws-ofi-nccl", "opt/aws-ofi-nccl")
"""Folders where AWS's EFA installer, Deep Learning images and older instructions put the plug-in."""
LIBFABRIC: Final = "opt/amazon/efa"
LIBRARY_FOLDERS: Final = ("lib", "lib64", "lib/x86_64-linux-gnu", "install/lib")
SEARCH_PATH: Final = "LD_LIBRARY_PATH"


def count_devices(root: Path = Path("/")) -> int:
    """Count the EFA devices in the kernel's list of InfiniBand devices under `root`."""
    devices = (root / "sys/class/infiniband").glob("*")
    return sum((device / "device/driver").resolve().name == EFA_DRIVER for device in devices)


def parse_domains(output: str) -> tuple[str, ...]:
    """Parse the distinct domain names from the output of `fi_info -p efa`; () without providers."""
    domains = [line.partition("domain:")[2].strip() for line in output.splitlines() if "domain:" in line]
    return tuple(dict.fromkeys(domains))


def plugin_variables(inherited: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """Return LD_LIBRARY_PATH such that NCCL finds libfabric's plug-in; {} on a node without EFA or plug-in.

    The value of LD_LIBRARY_PATH in `inherited` is kept at the end.
    """
    if not count_devices(root):
        return {}
    folders = [root / prefix / folder for prefix in PLUGIN_FOLDERS for folder in LIBRARY_FOLDERS]
    plugins = [folder for folder in folders if (folder / PLUGIN).exists()][:1]
    if not plugins:
        return {}
    libraries = [folder for name in LIBRARY_FOLDERS if (folder := root / LIBFABRIC / name).is_dir()]
    words = [*map(str, [*plugins, *libraries]), inherited.get(SEARCH_PATH, "")]
    return {SEARCH_PATH: ":".join(filter(None, words))}
