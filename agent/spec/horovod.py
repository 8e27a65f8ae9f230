"""Horovod's settings as validated values and as flags for horovodrun."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Final

GLOO: Final = "gloo"
MPI: Final = "mpi"
CONTROLLERS: Final = (GLOO, MPI)
CYCLE_TIME: Final = "HOROVOD_CYCLE_TIME"
AUTOTUNE: Final = "HOROVOD_AUTOTUNE"
WAKE_MS: Final = {GLOO: 0.1, MPI: 0.02}
"""Processor time, ms, that one cycle of Horovod's background thread costs per pair of ranks. Over Gloo, 0.06 was
measured with LeNet and 0.13 with ResNet-50, because it disturbs caches more. Over MPI, which wakes no second thread,
0.01 to 0.03 was measured."""
OWN_CYCLE_MS: Final = 1.0
"""Horovod's default cycle time."""
CYCLE_MS: Final = (0.5, 100.0)
"""Limits of a computed cycle time. Below, the thread would do little else; above, nothing more is saved."""


def best_controller(hosts: int, *, on_cores: bool) -> str:
    """Return the controller that is fastest for ranks on this number of hosts.

    `on_cores`: the ranks compute on CPU cores, and not on GPUs. Within one host, Open MPI uses shared memory and was
    faster on cores (docs/tuning.md). In all other cases it is Gloo: its ranks detect the loss of a rank by themselves.
    On GPUs, neither controller transports the gradients.
    """
    return MPI if hosts == 1 and on_cores else GLOO


def cycle_ms(step: float, ranks: int, controller: str = GLOO) -> float:
    """Return the cycle time in ms with the lowest cost within CYCLE_MS, for a `step` time in ms.

    It is rounded to two significant digits.

    In a step of duration S, a cycle time T costs the ranks W·S/T for wake-ups (W for each) and T/2 for waiting until
    the next cycle. The minimum is at T = sqrt(2·W·S). If the estimate of S is wrong by a factor of four, T is wrong by
    a factor of two, which costs a quarter more than the minimum. Each wake-up passes a message around the ring of all
    ranks, so W grows with their number. W was measured for two ranks.
    """
    best = math.sqrt(2 * WAKE_MS[controller] * (ranks - 1) * step)
    low, high = CYCLE_MS
    return float(f"{min(high, max(low, best)):.2g}")


class KnobError(ValueError):
    """Report an invalid setting of Horovod. Carries `flag`, such as `--cycle-time-ms`, `value` and `rule`."""

    def __init__(self, flag: str, value: object, rule: str) -> None:
        self.flag, self.value, self.rule = flag, value, rule
        super().__init__(f"{flag} = {value!r}: {rule}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Knobs:
    """Settings of Horovod. None leaves a setting to Horovod or its autotuner, which does not change the given ones.

    The annotation of each setting is the help text of its flag in `fab train`.
    """

    fusion_threshold_mb: Annotated[int | None, "Horovod: MiB of gradients to combine; default: 128"] = None
    """Size of the buffer that combines small gradients, MiB; 0: no combining. Horovod's default: 128."""
    cycle_time_ms: Annotated[float | None, "Horovod: ms between cycles of collectives; default: from the step time"] = (
        None
    )
    """Interval at which the background thread gathers gradients. None: derived from the step time (estimated by a
    recipe's ranks, assumed for a program), or chosen by the autotuner."""
    cache_capacity: Annotated[
        int | None, "Horovod: tensor names to cache, which then need no negotiation; default: 1024"
    ] = None
    """Number of tensor names that need no further negotiation. Horovod's default: 1024; 0: none."""
    hierarchical_allreduce: Annotated[
        bool, "Horovod: reduce within each host first, then between hosts; needs GPUs and --controller mpi"
    ] = False
    """Reduce within each host first, then between hosts. Horovod ignores it except in GPU builds over MPI."""
    hierarchical_allgather: Annotated[
        bool, "Horovod: gather within each host first, then between hosts; needs --controller mpi"
    ] = False
    """The same for allgather, over MPI."""
    autotune: Annotated[bool, "Horovod: tune these settings while training; writes autotune.csv in the run"] = False
    """Search fusion, cycle time and others while training; the trials are in autotune.csv in the run's directory."""
    timeline: Annotated[bool, "Horovod: record each collective in timeline.json in the run"] = False
    """Record each collective in timeline.json in the run's directory, for chrome://tracing. The file grows fast."""

    def __post_init__(self) -> None:
        _within("fusion_threshold_mb", self.fusion_threshold_mb, 0, 65536)
        _within("cycle_time_ms", self.cycle_time_ms, 0.01, 60_000)
        _within("cache_capacity", self.cache_capacity, 0, 1 << 30)

    def flags(self, run_directory: str) -> list[str]:
        """Return the given settings as flags for horovodrun.

        The files of autotune and timeline are in `run_directory`.
        """
        numbers = (
            ("--fusion-threshold-mb", self.fusion_threshold_mb),
            ("--cycle-time-ms", self.cycle_time_ms),
            ("--cache-capacity", self.cache_capacity),
        )
        switches = (
            ("--hierarchical-allreduce", self.hierarchical_allreduce),
            ("--hierarchical-allgather", self.hierarchical_allgather),
        )
        return [
            *(word for flag, value in numbers if value is not None for word in (flag, _shown(value))),
            *(flag for flag, on in switches if on),
            *(["--autotune", "--autotune-log-file", f"{run_directory}/autotune.csv"] if self.autotune else []),
            *(["--timeline-filename", f"{run_directory}/timeline.json"] if self.timeline else []),
        ]


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _within(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:  # also rejects NaN
        raise KnobError(f"--{name.replace('_', '-')}", value, f"must be {low:.10g} to {high:.10g}")
