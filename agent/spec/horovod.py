"""Horovod's own settings as validated values and as flags of horovodrun."""

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
"""Processor time that a cycle of Horovod's background thread costs a pair of ranks. Over Gloo 0.06 was measured with
LeNet, 0.13 with ResNet-50, whose caches it disturbs more; over MPI, which wakes no second thread, 0.01 to 0.03."""
OWN_CYCLE_MS: Final = 1.0
"""Horovod's own cycle, where nothing is chosen."""
CYCLE_MS: Final = (0.5, 100.0)
"""Bounds of a chosen cycle: below, the thread would do little else; above, there is nothing to gain."""


def best_controller(hosts: int, *, on_cores: bool) -> str:
    """Return the controller over which ranks on this many hosts communicate best.

    Open MPI passes messages within a host through shared memory, and was faster there on cores (docs/tuning.md). Gloo,
    whose ranks notice each other's loss by themselves, is for all else: on GPUs neither of them carries the gradients.
    """
    return MPI if hosts == 1 and on_cores else GLOO


def cycle_ms(step: float, ranks: int, controller: str = GLOO) -> float:
    """Return the cycle that costs least, ms.

    Per step a cycle T of Horovod's thread costs the ranks W·S/T in wake-ups, S being the step and W what each costs,
    and T/2 in waiting for the next one: least at T = sqrt(2·W·S). An estimate of S that is four times off doubles or
    halves T, which costs a quarter more than the least. Each wake-up passes a message round the ring of all ranks, so
    W grows with their number; measured is it for two.
    """
    best = math.sqrt(2 * WAKE_MS[controller] * (ranks - 1) * step)
    low, high = CYCLE_MS
    return float(f"{min(high, max(low, best)):.2g}")


class KnobError(ValueError):
    """Report a setting that breaks a rule. Carries `flag`, `value` and `rule`."""

    def __init__(self, flag: str, value: object, rule: str) -> None:
        self.flag, self.value, self.rule = flag, value, rule
        super().__init__(f"{flag} = {value!r}: {rule}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Knobs:
    """Settings of Horovod; None leaves one to Horovod or to its autotuner, which keeps what is given fixed.

    What each is annotated with is the help of its flag in `fab train`.
    """

    fusion_threshold_mb: Annotated[int | None, "Horovod: MiB of gradients that travel together; default: 128"] = None
    """Size of the buffer in which small gradients travel together, MiB; 0: each alone. Horovod's default: 128."""
    cycle_time_ms: Annotated[float | None, "Horovod: ms between gatherings of gradients; default: by the step"] = None
    """How often the background thread gathers gradients. None: by the step, which a recipe's ranks estimate and
    which is assumed for a program, or the autotuner's choice."""
    cache_capacity: Annotated[int | None, "Horovod: tensors that need no negotiation any more; default: 1024"] = None
    """Names of tensors that need no negotiation any more. Horovod's default: 1024; 0: none."""
    hierarchical_allreduce: Annotated[
        bool, "Horovod: within hosts first, then between them; needs a GPU build over MPI"
    ] = False
    """Within each host first, then between hosts. Horovod does so in GPU builds over MPI, and ignores it elsewhere."""
    hierarchical_allgather: Annotated[bool, "Horovod: the same for allgather; needs --controller mpi"] = False
    """The same for allgather, over MPI."""
    autotune: Annotated[bool, "Horovod: search these settings while training, into autotune.csv of the run"] = False
    """Search fusion, cycle and the like while training; the trials go to autotune.csv in the run's directory."""
    timeline: Annotated[bool, "Horovod: record every collective in timeline.json of the run"] = False
    """Record each collective in timeline.json in the run's directory, for chrome://tracing; it grows fast."""

    def __post_init__(self) -> None:
        _within("fusion_threshold_mb", self.fusion_threshold_mb, 0, 65536)
        _within("cycle_time_ms", self.cycle_time_ms, 0.01, 60_000)
        _within("cache_capacity", self.cache_capacity, 0, 1 << 30)

    def flags(self, run_directory: str) -> list[str]:
        """Build horovodrun's flags; what it writes goes to `run_directory`."""
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
    if value is not None and not low <= value <= high:  # also refuses NaN
        raise KnobError(f"--{name.replace('_', '-')}", value, f"must be {low:g} to {high:g}")
