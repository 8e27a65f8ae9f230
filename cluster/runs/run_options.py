"""Launch options that do not depend on the kind of run: ranks, variables, Horovod settings, checks,
restarts, limits.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Final

from agent.spec.horovod import CONTROLLERS, MPI, Knobs
from agent.spec.launchers import HOROVOD, LAUNCHERS, PLACE_VARIABLES, TOGETHER
from agent.spec.nodes import MAX_SLOTS
from agent.spec.run import MAX_RESTARTS, MAX_STALL_S, PLACED, UNPLACED
from agent.spec.run_limits import RunLimits
from cluster.cli.flags import limit, parse_whole, whole
from cluster.errors import UsageError

CORES: Final = "cores"
AUTO: Final = "auto"
MAX_USD: Final = 1e7
MAX_HOURS: Final = 24 * 366.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreflightOptions:
    """Options for the checks of the nodes before a run."""

    skip_preflight: Annotated[bool, "do not check the nodes before the run"] = False
    full_preflight: Annotated[bool, "test an allreduce even if these nodes have passed the test since their boot"] = (
        False
    )
    allow_degraded: Annotated[
        bool, "also start if GPUs would be idle or are slower than their minimum; the record says so"
    ] = False

    def __post_init__(self) -> None:
        if self.skip_preflight and self.full_preflight:
            raise UsageError("--skip-preflight", None, "contradicts --full-preflight; give only one of them")

    @property
    def mode(self) -> str:
        """Return auto, full or skip, for `preflight` in the run's spec."""
        return "skip" if self.skip_preflight else "full" if self.full_preflight else "auto"


STALL_MINUTES: Final = whole(lowest=0, highest=MAX_STALL_S // 60)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestartOptions:
    """Options for automatic restarts after a machine fault: how many, and on how many nodes."""

    restarts: Annotated[
        int,
        "number of automatic restarts after a machine fault: a lost node, or a killed or stuck rank; an error of the "
        "program is no fault",
        whole(lowest=0, highest=MAX_RESTARTS),
    ] = 3
    min_nodes: Annotated[
        int,
        "after a fault, continue with at least this many nodes if not all are back within 3 minutes; default: all, "
        "or fewer after 5 minutes if AWS has no replacement",
        whole(lowest=1),
    ] = 0
    stall_minutes: Annotated[
        int,
        "kill a rank that is stuck (no step, no output, no CPU time) for this many minutes; 0: never",
        STALL_MINUTES,
    ] = 10

    def __post_init__(self) -> None:
        if self.min_nodes and not self.restarts:
            rule = "has no effect without restarts; leave it out, or give --restarts 1 or more"
            raise UsageError("--min-nodes", self.min_nodes, rule)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Limits on a run's cost and time, over all its attempts."""

    max_cost: Annotated[
        float | None,
        "limit on the cost of the run's instances and the master, in US dollars; at the limit, the run is stopped, as "
        "by `fab stop`; none: no limit",
        limit(highest=MAX_USD, unit="US dollars"),
    ] = None
    max_hours: Annotated[
        float | None,
        "limit on the hours of the run, restarts and resumes included; at the limit, the run is stopped, as by "
        "`fab stop`; none: no limit",
        limit(highest=MAX_HOURS, unit="hours"),
    ] = None
    then_stop: Annotated[
        bool,
        "terminate all workers after the run, whether it succeeds or not, unless another run is queued; "
        "default: then_stop of cdk.json",
    ] = False

    def over(self, before: RunLimits) -> RunLimits:
        """Return these limits. A limit that is not given is taken from `before`."""
        return RunLimits(
            max_usd=before.max_usd if self.max_cost is None else self.max_cost,
            max_hours=before.max_hours if self.max_hours is None else self.max_hours,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankOptions:
    """Options for the ranks: how many per node, their launcher, and how they communicate."""

    ranks_per_node: Annotated[
        str,
        "ranks per node: a number, or cores (one rank per physical core); default: one per GPU, or one per node "
        "without GPUs",
    ] = ""
    launcher: Annotated[
        str,
        "launcher of your program's ranks: horovod, torchrun (PyTorch), or plain (only environment variables); "
        "default: chosen from the program's sources",
    ] = ""
    together: Annotated[
        str,
        "if your program's ranks would not train together: auto asks and warns, require stops the run, no lets each "
        "rank train its own model",
    ] = TOGETHER[0]
    controller: Annotated[
        str,
        "how ranks connect and run allreduces: gloo, mpi (Open MPI), or auto: mpi for several ranks on the cores "
        "of one node, otherwise gloo",
    ] = AUTO
    placement: Annotated[
        str, "auto: give each rank cores, memory, threads and a nearby GPU; none: leave that to the program"
    ] = PLACED
    own_gpu: Annotated[
        bool,
        "let each rank of your program see only its own GPU; default: each sees all, and uses the one of its "
        "local rank",
    ] = False

    def __post_init__(self) -> None:
        if self.ranks_per_node not in ("", CORES):
            parse_whole("--ranks-per-node", self.ranks_per_node, lowest=1, highest=MAX_SLOTS)
        if self.launcher not in ("", *LAUNCHERS):
            raise UsageError("--launcher", self.launcher, f"must be one of {', '.join(LAUNCHERS)}")
        if self.together not in TOGETHER:
            raise UsageError("--together", self.together, f"must be one of {', '.join(TOGETHER)}")
        if self.launcher not in ("", HOROVOD) and self.controller != AUTO:
            rule = f"is a setting of Horovod, which --launcher {self.launcher} does not use; leave it out"
            raise UsageError("--controller", self.controller, rule)
        if self.placement not in (PLACED, UNPLACED):
            raise UsageError("--placement", self.placement, f"must be {PLACED} or {UNPLACED}")
        if self.own_gpu and self.placement == UNPLACED:
            rule = f"assigns GPUs, but --placement {UNPLACED} leaves that to the program; give only one of them"
            raise UsageError("--own-gpu", None, rule)
        if self.controller not in (*CONTROLLERS, AUTO):
            raise UsageError("--controller", self.controller, f"must be {', '.join(CONTROLLERS)} or {AUTO}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Launch options that do not depend on the kind of run."""

    environment: tuple[tuple[str, str], ...] = ()
    """Environment variables for the ranks."""
    secrets: tuple[str, ...] = ()
    """Names of the secret variables. Their values are in no record."""
    ranks: RankOptions = dataclasses.field(default_factory=RankOptions)
    knobs: Knobs = dataclasses.field(default_factory=Knobs)
    preflight: PreflightOptions = dataclasses.field(default_factory=PreflightOptions)
    restarts: RestartOptions = dataclasses.field(default_factory=RestartOptions)
    bounds: RunLimits = dataclasses.field(default_factory=RunLimits)
    stop_policy: str = ""
    """Scaling policy that terminates the workers when the run and the queue are done; "" if they stay."""
    notify: tuple[str, ...] = ()
    """How the master sends notifications about the run: commands and ARNs of SNS topics."""

    def __post_init__(self) -> None:
        if both := {name for name, _ in self.environment} & set(self.secrets):
            raise UsageError("--secret", min(both), "is also given with --env; give it only once")
        if (launcher := self.ranks.launcher or HOROVOD) != HOROVOD:
            for field in dataclasses.fields(Knobs):
                if getattr(self.knobs, field.name) != field.default:
                    rule = f"is a setting of Horovod, which --launcher {launcher} does not use; leave it out"
                    raise UsageError(f"--{field.name.replace('_', '-')}", None, rule)
            if theirs := {*dict(self.environment), *self.secrets} & set(PLACE_VARIABLES):
                flag = "--secret" if min(theirs) in self.secrets else "--env"
                raise UsageError(flag, min(theirs), f"is set by --launcher {launcher}; leave it out")
        if self.knobs.hierarchical_allreduce and self.ranks.controller != MPI:
            rule = "needs nodes with GPUs and --controller mpi, because Horovod otherwise ignores it; give both flags"
            raise UsageError("--hierarchical-allreduce", None, rule)
        if self.knobs.hierarchical_allgather and self.ranks.controller != MPI:
            rule = "needs --controller mpi, because Horovod ignores it with Gloo; give both flags"
            raise UsageError("--hierarchical-allgather", None, rule)
