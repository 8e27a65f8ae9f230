"""Launch options that do not depend on the kind of run: ranks, variables, Horovod settings, checks,
restarts, limits.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Final

from agent.spec.bounds import Bounds
from agent.spec.horovod import CONTROLLERS, MPI, Knobs
from agent.spec.launchers import HOROVOD, LAUNCHERS, PLACE_VARIABLES, TOGETHER
from agent.spec.nodes import MOST_SLOTS
from agent.spec.run import MAX_STALL_S, MOST_RESTARTS, PLACED, UNPLACED
from cluster.cli.flags import parse_whole, positive, whole
from cluster.errors import UsageError

CORES: Final = "cores"
AUTO: Final = "auto"
MOST_USD: Final = 1e7
MOST_HOURS: Final = 24 * 366.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreflightOptions:
    """Options for the checks of the nodes before a run."""

    skip_preflight: Annotated[bool, "do not look at the nodes before the run"] = False
    full_preflight: Annotated[bool, "prove an allreduce even where these nodes have done so since their boot"] = False
    allow_degraded: Annotated[
        bool, "begin also where GPUs would lie idle, or are slower than they must be; the record says so"
    ] = False

    def __post_init__(self) -> None:
        if self.skip_preflight and self.full_preflight:
            raise UsageError("--skip-preflight", None, "leaves out what --full-preflight asks for; give one of them")

    @property
    def mode(self) -> str:
        """Return auto, full or skip, the values that a run's spec uses."""
        return "skip" if self.skip_preflight else "full" if self.full_preflight else "auto"


STALL_MINUTES: Final = whole(lowest=0, highest=MAX_STALL_S // 60)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestartOptions:
    """Options for automatic restarts after a machine fault: how many, and on how many nodes."""

    restarts: Annotated[
        int,
        "restarts by itself after a fault of the machine: a node lost, a rank killed or stuck; never for an error",
        whole(lowest=0, highest=MOST_RESTARTS),
    ] = 3
    min_nodes: Annotated[
        int,
        "go on with as many nodes where not all come back within 3 minutes; default: all, or fewer after 5 minutes "
        "if AWS has no replacement",
        whole(lowest=1),
    ] = 0
    stall_minutes: Annotated[
        int,
        "kill a rank that is stuck: no step, no output and no CPU time for so many minutes; 0: never",
        STALL_MINUTES,
    ] = 10

    def __post_init__(self) -> None:
        if self.min_nodes and not self.restarts:
            raise UsageError("--min-nodes", self.min_nodes, "is for restarts, and --restarts 0 makes none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundOptions:
    """Limits on a run's cost and time, over all its attempts."""

    max_cost: Annotated[
        float | None,
        "US dollars that its instances may cost, the master's too; then the run writes a checkpoint and is stopped",
        positive(highest=MOST_USD, unit="US dollars"),
    ] = None
    max_hours: Annotated[
        float | None,
        "hours that it may take, restarts and resumes together; then it writes a checkpoint and is stopped",
        positive(highest=MOST_HOURS, unit="hours"),
    ] = None
    then_stop: Annotated[
        bool, "end all workers when the run has ended, in whatever way, and none waits; default: then_stop of cdk.json"
    ] = False

    def over(self, before: Bounds) -> Bounds:
        """Return these limits. A limit that is not given is taken from `before`."""
        return Bounds(max_usd=self.max_cost or before.max_usd, max_hours=self.max_hours or before.max_hours)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankOptions:
    """Options for the ranks: how many per node, their launcher, and how they communicate."""

    ranks_per_node: Annotated[str, "a number, or cores; default: one a GPU, or one where a node has none"] = ""
    launcher: Annotated[
        str,
        "what starts the ranks of a program of yours: horovod, torchrun (PyTorch's), or plain (variables alone); "
        "default: chosen by its sources",
    ] = ""
    together: Annotated[
        str,
        "if the ranks of a program of yours do not train together: auto asks and warns, require stops the run, no "
        "means that each is to train alone",
    ] = TOGETHER[0]
    controller: Annotated[
        str, "what the ranks meet and add up over: gloo, mpi (Open MPI), or auto: mpi for cores of one node"
    ] = AUTO
    placement: Annotated[
        str, "auto: give each rank cores, memory, threads and a GPU near them; none: leave that to the program"
    ] = PLACED
    own_gpu: Annotated[
        bool, "show each rank of a program of yours its own GPU alone; default: all, of which it takes its local rank's"
    ] = False

    def __post_init__(self) -> None:
        if self.ranks_per_node not in ("", CORES):
            parse_whole("--ranks-per-node", self.ranks_per_node, lowest=1, highest=MOST_SLOTS)
        if self.launcher not in ("", *LAUNCHERS):
            raise UsageError("--launcher", self.launcher, f"must be {', '.join(LAUNCHERS)}")
        if self.together not in TOGETHER:
            raise UsageError("--together", self.together, f"must be {', '.join(TOGETHER)}")
        if self.launcher not in ("", HOROVOD) and self.controller != AUTO:
            raise UsageError("--controller", self.controller, f"is Horovod's; --launcher {self.launcher} has none")
        if self.placement not in (PLACED, UNPLACED):
            raise UsageError("--placement", self.placement, f"must be {PLACED} or {UNPLACED}")
        if self.own_gpu and self.placement == UNPLACED:
            raise UsageError("--own-gpu", None, f"gives GPUs out, which --placement {UNPLACED} leaves to the program")
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
    bounds: Bounds = dataclasses.field(default_factory=Bounds)
    stop_policy: str = ""
    """Scaling policy that terminates the workers when the run and the queue are done; "" if they stay."""
    notify: tuple[str, ...] = ()
    """How the master sends notifications about the run: commands and ARNs of SNS topics."""

    def __post_init__(self) -> None:
        if both := {name for name, _ in self.environment} & set(self.secrets):
            raise UsageError("--secret", min(both), "is given with --env too; give it once")
        if (launcher := self.ranks.launcher or HOROVOD) != HOROVOD:
            if self.knobs != Knobs():
                raise UsageError("--launcher", launcher, "does not start Horovod, whose settings are given too")
            if theirs := {*dict(self.environment), *self.secrets} & set(PLACE_VARIABLES):
                raise UsageError("--env", min(theirs), f"is what --launcher {launcher} itself tells the ranks")
        if self.knobs.hierarchical_allreduce and self.ranks.controller != MPI:
            rule = "needs nodes with GPUs and --controller mpi; else Horovod would ignore it"
            raise UsageError("--hierarchical-allreduce", None, rule)
        if self.knobs.hierarchical_allgather and self.ranks.controller != MPI:
            raise UsageError("--hierarchical-allgather", None, "needs --controller mpi; over Gloo Horovod ignores it")
