"""EFA devices of a node, and where images keep what NCCL needs to use them.

NCCL loads libfabric's plug-in by the name libnccl-net.so from the loader's path. Images set that path in a login
shell's profile, which ranks do not read; without it NCCL takes TCP and does not say so (as in NVIDIA-NeMo/RL#2359).
Standard library only. Not run on EFA yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

DRIVER: Final = "efa"
PLUGIN: Final = "libnccl-net.so"
PREFIXES: Final = ("opt/amazon/ofi-nccl", "opt/amazon/aws-ofi-nccl", "opt/aws-ofi-nccl")
"""Where AWS's EFA installer, its Deep Learning images and its older instructions put the plug-in."""
LIBFABRIC: Final = "opt/amazon/efa"
FOLDERS: Final = ("lib", "lib64", "lib/x86_64-linux-gnu", "install/lib")
SEARCH_PATH: Final = "LD_LIBRARY_PATH"


def count_devices(root: Path = Path("/")) -> int:
    """Return the number of EFA devices by the kernel's list of InfiniBand devices beneath `root`."""
    devices = (root / "sys/class/infiniband").glob("*")
    return sum((device / "device/driver").resolve().name == DRIVER for device in devices)


def plugin_variables(inherited: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """Return the loader's path with which NCCL finds libfabric's plug-in; nothing on a node without EFA or plug-in."""
    if not count_devices(root):
        return {}
    folders = [root / prefix / folder for prefix in PREFIXES for folder in FOLDERS]
    plugins = [folder for folder in folders if (folder / PLUGIN).exists()][:1]
    if not plugins:
        return {}
    libraries = [folder for name in FOLDERS if (folder := root / LIBFABRIC / name).is_dir()]
    words = [*map(str, [*plugins, *libraries]), inherited.get(SEARCH_PATH, "")]
    return {SEARCH_PATH: ":".join(filter(None, words))}
