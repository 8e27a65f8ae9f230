"""NVIDIA GPUs of a node: count device files and query nvidia-smi, with one query and one parser per purpose.

Tested on one H200, not with several GPUs or MIG. Standard library only: a node's own Python has no NVIDIA bindings.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 20.0
"""Timeout of nvidia-smi. Unless its daemon runs, the first call loads the driver, which takes seconds."""
MIB: Final = 1 << 20
INFO_FIELDS: Final = ("name", "driver_version", "memory.total", "ecc.errors.uncorrected.volatile.total")
LOAD_FIELDS: Final = ("name", "utilization.gpu", "memory.used", "memory.total", "temperature.gpu")


class NvidiaSmiError(RuntimeError):
    """Report that nvidia-smi is installed but fails, with the last line of its output, or does not finish in time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PciGpu:
    """A GPU on the PCI bus."""

    index: int
    """Number in the order of the PCI bus. CUDA uses the same numbers if CUDA_DEVICE_ORDER is PCI_BUS_ID."""
    address: str
    """PCI address."""
    node: int | None
    """The memory node that the GPU is attached to; None if the machine does not report it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuInfo:
    """A GPU's model, driver and health."""

    name: str
    driver: str
    memory: str
    uncorrected_errors: int | None
    """Uncorrectable memory errors since the driver was loaded; None if they are not counted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuLoad:
    """The current load of a GPU. None means that nvidia-smi does not report the value."""

    name: str
    utilization: float | None
    """Share of the last sample period that a kernel ran, 0 to 1."""
    memory_used: int | None
    """Bytes."""
    memory_total: int | None
    """Bytes."""
    temperature_c: float | None


def count_gpu_devices(root: Path = Path("/")) -> int:
    """Count the GPUs by their device files (dev/nvidia0, dev/nvidia1, ...) under `root`."""
    return sum(re.fullmatch(r"nvidia[0-9]+", path.name) is not None for path in (root / "dev").glob("nvidia*"))


def query(fields: Sequence[str], *options: str, program: str = "nvidia-smi") -> str | None:
    """Return nvidia-smi's CSV output for these fields, one line per GPU; None if it is not installed.

    `options` are further words of its --format, such as `nounits`. Raises NvidiaSmiError if nvidia-smi fails or does
    not finish within TIMEOUT_S.
    """
    command = [program, f"--query-gpu={','.join(fields)}", f"--format={','.join(('csv', 'noheader', *options))}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False)
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        raise NvidiaSmiError(f"{program} did not finish within {TIMEOUT_S:g} s") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise NvidiaSmiError(lines[-1] if lines else f"exit status {done.returncode}")
    return done.stdout


def read_info(program: str = "nvidia-smi") -> tuple[GpuInfo, ...]:
    """Return the GPUs that nvidia-smi lists; () if it is not installed.

    Raises NvidiaSmiError if nvidia-smi fails, and ValueError for malformed output.
    """
    return parse_info(query(INFO_FIELDS, program=program) or "")


def read_load(program: str = "nvidia-smi") -> tuple[GpuLoad, ...]:
    """Return the load of each GPU; () if nvidia-smi is missing or fails. Raises ValueError for malformed output."""
    try:
        return parse_load(query(LOAD_FIELDS, "nounits", program=program) or "")
    except NvidiaSmiError:
        return ()


def parse_info(csv: str) -> tuple[GpuInfo, ...]:
    """Parse nvidia-smi's output for INFO_FIELDS. Raises ValueError with the malformed line."""
    return tuple(
        GpuInfo(name=name, driver=driver, memory=memory, uncorrected_errors=int(errors) if errors.isdecimal() else None)
        for name, driver, memory, errors in _rows(csv, INFO_FIELDS)
    )


def parse_load(csv: str) -> tuple[GpuLoad, ...]:
    """Parse nvidia-smi's output for LOAD_FIELDS without units. Raises ValueError with the malformed line."""
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
            raise ValueError(f"nvidia-smi printed {', '.join(row)!r} instead of the values of {', '.join(fields)}")
    return rows


def _number(word: str) -> float | None:
    """Return nvidia-smi's number; None for [N/A], [Not Supported] and other texts."""
    return float(word) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?", word) else None
