"""NVIDIA GPUs and EFA devices of a node.

GPUs: their device files, and what nvidia-smi reports, one query and one parser for each purpose. Read on one H200; not
tried: several GPUs, MIG.

EFA: NCCL loads libfabric's plug-in by the name libnccl-net.so from the loader's path. Images set that path in a login
shell's profile, which ranks do not read; without it NCCL takes TCP and does not say so (as in NVIDIA-NeMo/RL#2359). Not
run on EFA yet. Standard library only, since a node's own Python has no NVIDIA bindings.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 20.0
"""The first call loads the driver, which takes seconds without its daemon."""
MIB: Final = 1 << 20
INFO_FIELDS: Final = ("name", "driver_version", "memory.total", "ecc.errors.uncorrected.volatile.total")
LOAD_FIELDS: Final = ("name", "utilization.gpu", "memory.used", "memory.total", "temperature.gpu")


class NvidiaSmiError(RuntimeError):
    """Report an nvidia-smi that is installed and fails: its last line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PciGpu:
    """A GPU on the PCI bus."""

    index: int
    """Number in the order of the PCI bus, in which CUDA counts under CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    address: str
    """On the PCI bus."""
    node: int | None
    """The memory node that it is attached to; None where the machine does not report it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuInfo:
    """A GPU's model, driver and health."""

    name: str
    driver: str
    memory: str
    uncorrected_errors: int | None
    """Memory errors since the driver was loaded that could not be corrected; None where they are not counted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuLoad:
    """What a GPU is doing; None for what nvidia-smi does not report."""

    name: str
    utilization: float | None
    """Part of the last sample period in which a kernel ran, 0 to 1."""
    memory_used: int | None
    """Bytes."""
    memory_total: int | None
    """Bytes."""
    temperature_c: float | None


def count_gpu_devices(root: Path = Path("/")) -> int:
    """Return the number of GPUs by their device files (dev/nvidia0, dev/nvidia1, ...) beneath `root`."""
    return sum(re.fullmatch(r"nvidia[0-9]+", path.name) is not None for path in (root / "dev").glob("nvidia*"))


def query(fields: Sequence[str], *options: str, program: str = "nvidia-smi") -> str | None:
    """Return nvidia-smi's answer as CSV, a line for each GPU; None where it is not installed. Raises NvidiaSmiError."""
    command = [program, f"--query-gpu={','.join(fields)}", f"--format={','.join(('csv', 'noheader', *options))}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        raise NvidiaSmiError(f"{program} did not end within {TIMEOUT_S:g} s") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise NvidiaSmiError(lines[-1] if lines else f"status {done.returncode}")
    return done.stdout


def read_info(program: str = "nvidia-smi") -> tuple[GpuInfo, ...]:
    """Return the GPUs that nvidia-smi lists; none where it is not installed. Raises NvidiaSmiError, ValueError."""
    return parse_info(query(INFO_FIELDS, program=program) or "")


def read_load(program: str = "nvidia-smi") -> tuple[GpuLoad, ...]:
    """Return the load of each GPU; none where nvidia-smi is not installed or fails. Raises ValueError."""
    try:
        return parse_load(query(LOAD_FIELDS, "nounits", program=program) or "")
    except NvidiaSmiError:
        return ()


def parse_info(csv: str) -> tuple[GpuInfo, ...]:
    """Parse the answer for INFO_FIELDS. Raises ValueError, which quotes a malformed line."""
    return tuple(
        GpuInfo(name=name, driver=driver, memory=memory, uncorrected_errors=int(errors) if errors.isdecimal() else None)
        for name, driver, memory, errors in _rows(csv, INFO_FIELDS)
    )


def parse_load(csv: str) -> tuple[GpuLoad, ...]:
    """Parse the answer for LOAD_FIELDS without units. Raises ValueError, which quotes a malformed line."""
    gpus = []
    for name, *words in _rows(csv, LOAD_FIELDS):
        percent, used, total, temperature = map(_number, words)
        gpus.append(
            GpuLoad(
                name=name,
                utilization=None if percent is None else percent / 100,
                memory_used=None if used is None else round(used * MIB),
                memory_total=None if total is None else round(total * MIB),
                temperature_c=temperature,
            )
        )
    return tuple(gpus)


def _rows(csv: str, fields: Sequence[str]) -> list[list[str]]:
    rows = [[word.strip() for word in line.split(",")] for line in csv.splitlines() if line.strip()]
    for row in rows:
        if len(row) != len(fields):
            raise ValueError(f"nvidia-smi printed {', '.join(row)!r} instead of {', '.join(fields)}")
    return rows


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None  # [N/A], [Not Supported]


EFA_DRIVER: Final = "efa"
PLUGIN: Final = "libnccl-net.so"
PLUGIN_FOLDERS: Final = ("opt/amazon/ofi-nccl", "opt/amazon/aws-ofi-nccl", "opt/aws-ofi-nccl")
"""Where AWS's EFA installer, its Deep Learning images and its older instructions put the plug-in."""
LIBFABRIC: Final = "opt/amazon/efa"
LIBRARY_FOLDERS: Final = ("lib", "lib64", "lib/x86_64-linux-gnu", "install/lib")
SEARCH_PATH: Final = "LD_LIBRARY_PATH"


def count_efa_devices(root: Path = Path("/")) -> int:
    """Return the number of EFA devices by the kernel's list of InfiniBand devices beneath `root`."""
    devices = (root / "sys/class/infiniband").glob("*")
    return sum((device / "device/driver").resolve().name == EFA_DRIVER for device in devices)


def plugin_variables(inherited: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """Return the loader's path with which NCCL finds libfabric's plug-in; nothing on a node without EFA or plug-in."""
    if not count_efa_devices(root):
        return {}
    folders = [root / prefix / folder for prefix in PLUGIN_FOLDERS for folder in LIBRARY_FOLDERS]
    plugins = [folder for folder in folders if (folder / PLUGIN).exists()][:1]
    if not plugins:
        return {}
    libraries = [folder for name in LIBRARY_FOLDERS if (folder := root / LIBFABRIC / name).is_dir()]
    words = [*map(str, [*plugins, *libraries]), inherited.get(SEARCH_PATH, "")]
    return {SEARCH_PATH: ":".join(filter(None, words))}
