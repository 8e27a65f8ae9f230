"""Collect the facts of one node before a run: clock, disk space, versions, interface, GPUs and EFA devices.

    PYTHON -m agent.preflight.node_facts RUN_DIRECTORY [BEGAN]    # the ranks' Python; prints a mark and a line of JSON

BEGAN is when the command that includes this program started, by the node's clock.

Large packages are not imported, so this takes a fraction of a second. Some facts are parsed from the output of
programs: `nvidia-smi` and libfabric's `fi_info`, if they are installed. On a node with GPUs, a separate process asks
TensorFlow how many GPUs it sees, which takes some seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.errors import SpecError
from agent.hardware import efa, gpus
from agent.hardware.gpus import GpuInfo, NvidiaSmiError, count_gpu_devices
from agent.hardware.machine import own_addresses
from agent.spec import untrusted_json
from agent.spec.run import RunSpec

MARK: Final = "deepcdk-facts "
DISTRIBUTIONS: Final = (
    "tensorflow-cpu",
    "tensorflow",
    "keras",
    "horovod",
    "numpy",
    "torch",
    *(f"nvidia-{library}-cu{cuda}" for cuda in (12, 13) for library in ("cuda-runtime", "cudnn", "nccl")),
)
ROOT_VOLUME: Final = Path("/")
EFA_PROGRAMS: Final = ("fi_info", "/opt/amazon/efa/bin/fi_info")
TIMEOUT_S: Final = 20.0
FRAMEWORK_TIMEOUT_S: Final = 120.0
"""The first import of TensorFlow after a boot reads 2 GB from the node's volume."""
VISIBLE: Final = "deepcdk-visible-gpus "
COUNT_VISIBLE_GPUS: Final = (
    f"import tensorflow as tf; print({VISIBLE!r} + str(len(tf.config.list_physical_devices('GPU'))))"
)

COMPLAINT: Final = re.compile(r"^(?:[WE]\d{4} |\S+ \S+: [WE] )[^]\n]*\] (.*\S)", re.MULTILINE)
"""A warning or error in TensorFlow's log, either as absl's "E0000 00:00:1795441657.237501 550 FILE:LINE] TEXT" or as
"2026-11-22 16:20:13.000001: E FILE:LINE] TEXT"."""


def facts_command(python: str, spec: RunSpec) -> list[str]:
    """Build the command that prints a node's facts. It must run in the agent's tree."""
    return [python, "-m", "agent.preflight.node_facts", spec.run_directory]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """The facts of one node."""

    time: float
    """The node's clock, seconds since 1970."""
    boot_id: str
    free_bytes: int
    """Free space on the fuller of the root volume and the login user's home, which runs, data and packages use.

    /tmp is not included, because many systems keep it in memory.
    """
    shared_free_bytes: int
    """Free space on the shared file system; on the root volume if the run's spec cannot be read."""
    spec_sha256: str
    """Hash of the run's spec as this node reads it; "" if it cannot."""
    interface: str
    """The network interface with one of the run's addresses; "" if there is none."""
    versions: tuple[tuple[str, str], ...]
    gpus: tuple[GpuInfo, ...] = ()
    gpu_trouble: str = ""
    """Last line of a failed `nvidia-smi`."""
    efa_domains: tuple[str, ...] | None = None
    """EFA devices that libfabric reports; None if libfabric is not installed."""
    gpu_devices: int = 0
    """Number of NVIDIA's device files, which exist even without `nvidia-smi`."""
    visible_gpus: int | None = None
    """Number of GPUs that TensorFlow sees in the ranks' Python; None if it was not asked or failed."""
    framework_trouble: str = ""
    """Last line of a failed TensorFlow."""
    framework_complaint: str = ""
    """The last warning or error in TensorFlow's log if it did not fail; "" if there is none."""
    began: float | None = None
    """When the node started to collect facts, by its clock; None: only `time` is known."""

    @classmethod
    def parse(cls, output: str) -> NodeFacts:
        """Parse the facts from a node's output. Raises ValueError unless it has exactly one valid line of facts."""
        lines = [line.partition(MARK)[2] for line in output.splitlines() if line.startswith(MARK)]
        if len(lines) != 1:
            raise ValueError(f"the pre-flight's program printed {len(lines)} results instead of 1")
        try:
            found = untrusted_json.parse(lines[0])
            domains = found.pop("efa_domains")
            return cls(
                **{
                    **found,
                    "versions": tuple((name, version) for name, version in found["versions"]),
                    "gpus": tuple(GpuInfo(**gpu) for gpu in found["gpus"]),
                    "efa_domains": None if domains is None else tuple(domains),
                }
            )
        except (TypeError, KeyError, AttributeError):
            raise ValueError(f"the pre-flight's program printed an invalid result: {lines[0][:100]!r}") from None


def versions() -> tuple[tuple[str, str], ...]:
    """Return the versions of Python and of those DISTRIBUTIONS that are installed, as pairs (name, version).

    The kernel's version and Python's third number are left out: they differ between images a week apart, which is
    harmless.
    """
    import importlib.metadata  # Not at the top: most importers of this module need no versions.

    found = [("python", ".".join(platform.python_version_tuple()[:2]))]
    for name in DISTRIBUTIONS:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)


def gather(run_directory: Path, began: float | None = None) -> NodeFacts:
    """Collect this node's facts. The node finds its entry in the run's spec by its address.

    On a node with GPUs, this asks TensorFlow for its GPUs, which takes seconds. `began` is as in `NodeFacts`. If the
    spec cannot be read, its hash and the interface are "".
    """
    listed, trouble = _gpus()
    devices = count_gpu_devices()
    spec_sha256, addresses, variables = "", set(), dict[str, str]()
    with contextlib.suppress(OSError, SpecError):
        content = (run_directory / "spec.json").read_bytes()
        spec_sha256 = hashlib.sha256(content).hexdigest()
        spec = RunSpec.from_json(content.decode())
        addresses, variables = {host.address for host in spec.hosts}, dict(spec.environment)
    visible, framework_trouble, complaint = visible_gpus(variables) if listed or devices else (None, "", "")
    own = own_addresses()
    return NodeFacts(
        time=time.time(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
        free_bytes=min(shutil.disk_usage(volume).free for volume in (ROOT_VOLUME, Path.home())),
        shared_free_bytes=shutil.disk_usage(run_directory if spec_sha256 else "/").free,
        spec_sha256=spec_sha256,
        interface=next((own[address] for address in addresses if address in own), ""),
        versions=versions(),
        gpus=listed,
        gpu_trouble=trouble,
        efa_domains=_efa(),
        gpu_devices=devices,
        visible_gpus=visible,
        framework_trouble=framework_trouble,
        framework_complaint=complaint,
        began=began,
    )


def parse_visible_gpus(output: str) -> int:
    """Parse the number of GPUs from the output of COUNT_VISIBLE_GPUS, which also has TensorFlow's own lines.

    Raises ValueError with the last line of the output if the number is missing.
    """
    counts = [line.removeprefix(VISIBLE) for line in output.splitlines() if line.startswith(VISIBLE)]
    if len(counts) != 1:
        raise ValueError((output.strip().splitlines() or ["no output"])[-1])
    return int(counts[0])


def parse_complaint(output: str) -> str:
    """Parse the text of the last warning or error from TensorFlow's log; "" if there is none.

    Only the log says why TensorFlow sees no GPU: for example a failing driver or a missing library.
    """
    return next(reversed(COMPLAINT.findall(output)), "")


def visible_gpus(variables: Mapping[str, str]) -> tuple[int | None, str, str]:
    """Ask TensorFlow in this Python, with the ranks' `variables`, how many GPUs it sees. This takes seconds.

    Return the number (None if TensorFlow fails), the reason of a failure or "", and the last complaint in its log or
    "".
    """
    status, output = _run((sys.executable, "-c", COUNT_VISIBLE_GPUS), FRAMEWORK_TIMEOUT_S, variables)
    try:
        return parse_visible_gpus(output), "", parse_complaint(output)
    except ValueError as error:
        return None, str(error) if status != 0 else f"TensorFlow exited without a result: {error}", ""


def _gpus() -> tuple[tuple[GpuInfo, ...], str]:
    try:
        return gpus.read_info(), ""
    except (NvidiaSmiError, ValueError) as error:
        return (), str(error)


def _efa() -> tuple[str, ...] | None:
    program = next((name for name in EFA_PROGRAMS if shutil.which(name)), None)
    return None if program is None else efa.parse_domains(_run((program, "-p", "efa"))[1])


def _run(
    command: Sequence[str], timeout_s: float = TIMEOUT_S, variables: Mapping[str, str] | None = None
) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(variables or {})},
        )
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} did not finish within {timeout_s:g} s"
    return done.returncode, done.stdout + done.stderr


def main(argv: Sequence[str]) -> int:
    """Print this node's facts as a mark and a line of JSON; return 0.

    The arguments are the run's directory and, optionally, `began` of `NodeFacts`.
    """
    began = float(argv[1]) if argv[1:] else None
    print(MARK + json.dumps(dataclasses.asdict(gather(Path(argv[0]), began))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
