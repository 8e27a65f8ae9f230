"""Choose threads, oneDNN and Horovod settings for one rank from its cores and workload. Standard library only.

Values from the user's flags and environment variables are kept. For the measurements, see docs/tuning.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Final

from agent.hardware.placement import CALLER_THREAD, OMP_THREADS, OMP_WAIT, ONEDNN, Placement, thread_variables
from agent.spec.horovod import AUTOTUNE, CYCLE_TIME, GLOO, MPI, cycle_ms

CONTROLLER: Final = "HOROVOD_CONTROLLER"
FUSION_THRESHOLD: Final = "HOROVOD_FUSION_THRESHOLD"

GFLOPS_512_BITS: Final = 60.0
"""Speed of one core with 512-bit vectors on ResNet-50 and LeNet, 1e9 operations per second (50 to 75 measured)."""
PASSES: Final = 3
"""Passes in a training step: forward, input gradients and weight gradients. Each takes as long as the forward pass."""
BACKWARD: Final = 2
"""Operations to run in parallel even in a chain of layers: input and weight gradients are independent."""
LARGEST_BUFFER_MIB: Final = 128
"""Horovod's default size of the buffer for gradients."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The workload of all ranks."""

    multiply_adds: int
    """Multiply-adds in the forward pass of one image."""
    branches: int
    """Number of the network's layers that can run in parallel."""
    parameters: int
    """Number of gradients to sum in each step."""
    batch_per_rank: int
    """Images that each rank processes in a step."""
    ranks: int
    bytes_per_gradient: int = 4

    @property
    def gradient_mib(self) -> float:
        """Return the size of the gradients that each rank sends in a step, MiB."""
        return self.parameters * self.bytes_per_gradient / 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """Settings of one rank, chosen automatically or by the user."""

    intra_op_threads: int
    """Threads within an operation. By default, the rank's physical cores. 0: TensorFlow decides."""
    inter_op_threads: int
    """Operations to run in parallel. By default, the network's branches, at least 2, at most the cores. 0: TensorFlow
    decides."""
    step_ms: float | None
    """Estimated computing time of a step. None on a GPU, because there is no estimate."""
    gradient_mib: float
    cycle_time_ms: float | None
    """Interval at which Horovod's background thread collects gradients. None: Horovod's default or its autotuner."""
    fusion_threshold_mib: int | None
    """Size of the buffer that collects gradients. None: Horovod's default or its autotuner."""
    variables: tuple[tuple[str, str], ...]
    """Environment variables to set before TensorFlow is imported."""
    given: tuple[str, ...]
    """Names of the settings and variables that the user chose."""

    def values(self) -> dict[str, float | int | str | None]:
        """Return the values to store in the run's record."""
        return {
            "intra_op_threads": self.intra_op_threads,
            "inter_op_threads": self.inter_op_threads,
            "estimated_step_ms": self.step_ms,
            "gradient_mib": round(self.gradient_mib, 3),
            "cycle_time_ms": self.cycle_time_ms,
            "fusion_threshold_mib": self.fusion_threshold_mib,
            "variables": " ".join(f"{name}={value}" for name, value in self.variables),
            "given": " ".join(self.given),
        }

    def __str__(self) -> str:
        parts = [
            f"intra-op {self.intra_op_threads or 'by default'}, inter-op {self.inter_op_threads or 'by default'}",
            *([f"a step of about {self.step_ms:.3g} ms"] if self.step_ms is not None else []),
            f"gradients of {self.gradient_mib:.3g} MiB",
            *([f"cycle {self.cycle_time_ms:g} ms"] if self.cycle_time_ms is not None else []),
            *([f"buffer {self.fusion_threshold_mib} MiB"] if self.fusion_threshold_mib is not None else []),
            *([f"given: {', '.join(self.given)}"] if self.given else []),
        ]
        return ", ".join(parts)


def tune(
    job: Job,
    placement: Placement,
    *,
    vector_bits: int,
    environ: Mapping[str, str],
    intra_op_threads: int = 0,
    inter_op_threads: int = 0,
) -> Tuning:
    """Choose the threads, oneDNN and Horovod settings of one rank. The caller must set the result's `variables`.

    A non-zero argument or a variable in `environ` takes precedence. Horovod's cycle and buffer are not chosen on a GPU,
    for a single rank, or with Horovod's autotuner. `vector_bits`: width of the cores' vectors. Ranks on equal hosts
    make the same choices. All ranks must have the same buffer size, so it depends only on the network.
    """
    intra = intra_op_threads or placement.cores
    step = None if placement.gpu else step_ms(job, placement.cores, vector_bits)
    variables = thread_variables(intra, vector_bits)
    cycle: float | None = None
    buffer: int | None = None
    if job.ranks > 1 and step is not None and not _on(environ, AUTOTUNE):
        controller = MPI if environ.get(CONTROLLER) == MPI else GLOO
        cycle, buffer = cycle_ms(step, job.ranks, controller), buffer_mib(job.gradient_mib)
        variables |= {CYCLE_TIME: f"{cycle:g}", FUSION_THRESHOLD: str(buffer << 20)}
    known = (CYCLE_TIME, FUSION_THRESHOLD, AUTOTUNE, OMP_THREADS, OMP_WAIT, ONEDNN, CALLER_THREAD)
    settings = {"intra_op_threads": intra_op_threads, "inter_op_threads": inter_op_threads}
    return Tuning(
        intra_op_threads=intra,
        inter_op_threads=inter_op_threads or max(1, min(max(BACKWARD, job.branches), intra)),
        step_ms=None if step is None else round(step, 1),
        gradient_mib=job.gradient_mib,
        cycle_time_ms=_number(environ.get(CYCLE_TIME), cycle),
        fusion_threshold_mib=_mib(environ.get(FUSION_THRESHOLD), buffer),
        variables=tuple((name, value) for name, value in variables.items() if name not in environ),
        given=(*(name for name, value in settings.items() if value), *(name for name in known if name in environ)),
    )


def untuned(job: Job, *, environ: Mapping[str, str]) -> Tuning:
    """Return a tuning that leaves all settings to TensorFlow and Horovod, except those in `environ`."""
    known = (CYCLE_TIME, FUSION_THRESHOLD, AUTOTUNE, OMP_THREADS, OMP_WAIT, ONEDNN, CALLER_THREAD)
    return Tuning(
        intra_op_threads=0,
        inter_op_threads=0,
        step_ms=None,
        gradient_mib=job.gradient_mib,
        cycle_time_ms=_number(environ.get(CYCLE_TIME), None),
        fusion_threshold_mib=_mib(environ.get(FUSION_THRESHOLD), None),
        variables=(),
        given=tuple(name for name in known if name in environ),
    )


def step_ms(job: Job, cores: int, vector_bits: int) -> float:
    """Estimate the computing time of one step, in ms, from its multiply-adds and the speed of a core.

    `vector_bits`: width of the cores' vectors.
    """
    operations = 2 * PASSES * job.multiply_adds * job.batch_per_rank
    return operations / (cores * GFLOPS_512_BITS * vector_bits / 512 * 1e9) * 1e3


def buffer_mib(gradient_mib: float) -> int:
    """Return the size of Horovod's buffer in MiB: room for all gradients, but at most Horovod's default."""
    return min(LARGEST_BUFFER_MIB, math.ceil(gradient_mib) + 1)


def _on(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "0") not in ("", "0")


def _number(text: str | None, chosen: float | None) -> float | None:
    try:
        return chosen if text is None else float(text)
    except ValueError:
        return None


def _mib(text: str | None, chosen: int | None) -> int | None:
    return chosen if text is None else int(text) >> 20 if text.isdecimal() else None
