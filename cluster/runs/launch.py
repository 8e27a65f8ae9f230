"""From a task's arguments to the commands that the master gets. Pure, but for reading the commit."""

from __future__ import annotations

import dataclasses
import datetime
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from agent.errors import ReportedError
from agent.launch.horovodrun_command import horovodrun
from agent.spec.horovod import CONTROLLERS, MPI, KnobError, Knobs, best_controller
from agent.spec.nodes import (
    MASTER_NAME,
    MOST_SLOTS,
    NODE_PYTHON,
    WORKER_PREFIX,
    Node,
    choose_hosts,
    common_network,
    meeting_interface,
    workers,
)
from agent.spec.rank_command import rank_command
from agent.spec.run import RunSpec
from agent.spec.states import make_run_id
from cluster.aws.stack import Stack
from cluster.cli.numbers import parse_whole
from cluster.errors import UsageError
from cluster.runs.program import Program
from payload.recipes.config import TrainConfig
from payload.settings import SettingError

RUNTIME_PYTHON = "RUNTIME/bin/python"
CORES = "cores"
AUTO = "auto"
_ANY_RUN = "/run"
_UNKNOWN = Node(
    name=MASTER_NAME, address="0.0.0.0", instance_id="i-00000000", slots=1, interface="eth0", zone="us-east-1a"
)
"""What a dry run takes a node for before any has joined; only its one slot is shown."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Hold what `fab train` asks of payload.train; empty values are the recipe's own."""

    recipe: str = "digits"
    epochs: str = ""
    batch_per_rank: str = ""
    learning_rate: str = ""
    seed: str = ""
    data_dir: str = ""
    """On the nodes, for recipes whose data does not ship with a library."""
    further: tuple[str, ...] = ()
    """Any other arguments of payload.train."""

    def __post_init__(self) -> None:
        # The ranks' own reader says here, before anything is asked or spent, what it would say there.
        try:
            config = TrainConfig.from_argv(self.command(_ANY_RUN)[2:])
        except SettingError as error:
            raise UsageError(error.flag, error.value, error.rule) from None
        except ReportedError as error:
            raise UsageError("--recipe", self.recipe, str(error)) from None
        if str(config.run_dir) != _ANY_RUN:
            raise UsageError(
                "--run-dir", str(config.run_dir), "each run has a directory of its own; leave the flag out"
            )

    @property
    def label(self) -> str:
        """Return what runs of it are called."""
        return self.recipe

    def command(self, run_directory: str) -> tuple[str, ...]:
        """Build what each rank runs after its interpreter."""
        given = (
            ("--epochs", self.epochs),
            ("--batch-per-rank", self.batch_per_rank),
            ("--learning-rate", self.learning_rate),
            ("--seed", self.seed),
            ("--data-dir", self.data_dir),
        )
        flags = [word for flag, value in given if value for word in (flag, value)]
        return ("-m", "payload.train", "--recipe", self.recipe, "--run-dir", run_directory, *flags, *self.further)


def read_work(
    payload: str,
    entry: str,
    further: Sequence[str],
    recipe: Mapping[str, str],
    *,
    requirements: str = "",
    keras: str = "",
) -> Training | Program:
    """Read what is to run: the user's program, or else a recipe with its flags. Raises UsageError for a mixture."""
    given = {name: text for name, text in recipe.items() if text}
    if not payload:
        for flag, value in (
            ("--entry", entry),
            ("--requirements", requirements),
            ("--keras", keras),
        ):
            if value:
                raise UsageError(flag, value, "needs --payload DIRECTORY, the one with your program")
        arguments = given.pop("args", "")
        return Training(**given, further=(*split_further(arguments), *further))
    for name, text in given.items():
        rule = "is a recipe's; a program of your own takes its arguments in --entry or after --"
        raise UsageError(f"--{name.replace('_', '-')}", text, rule)
    return Program.from_arguments(payload, entry, further, requirements=requirements, keras=keras)


def parse_preflight(*, skip: bool, full: bool) -> str:
    """Return which checks go before a run. Raises UsageError for both flags at once."""
    if skip and full:
        raise UsageError("--skip-preflight", None, "leaves out what --full-preflight asks for; give one of them")
    return "skip" if skip else "full" if full else "auto"


def parse_knobs(
    *, fusion_threshold_mb: str = "", cycle_time_ms: str = "", cache_capacity: str = "", **switches: bool
) -> Knobs:
    """Parse Horovod's settings as flags give them. Raises UsageError that names the rule."""
    cycle = parse_number("--cycle-time-ms", cycle_time_ms) if cycle_time_ms else None
    try:
        return Knobs(
            fusion_threshold_mb=_whole_or_none("--fusion-threshold-mb", fusion_threshold_mb),
            cycle_time_ms=cycle,
            cache_capacity=_whole_or_none("--cache-capacity", cache_capacity),
            **switches,
        )
    except KnobError as error:
        raise UsageError(error.flag, error.value, error.rule) from None


def _whole_or_none(name: str, text: str) -> int | None:
    return parse_whole(name, text, lowest=0) if text else None


def parse_number(name: str, text: str) -> float:
    """Parse a number of a flag. Raises UsageError that names the rule."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(name, text, "must be a number") from None


def split_further(text: str) -> tuple[str, ...]:
    """Split --args as a shell would, without ever giving it to one. Raises UsageError for an open quote."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError("--args", text, f"cannot be split into words: {error}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """Hold how a run is launched, whatever it runs."""

    environment: tuple[tuple[str, str], ...] = ()
    """Variables for the ranks."""
    secrets: tuple[str, ...] = ()
    """Names of those whose values go another way."""
    ranks_per_node: str = ""
    """A number, `cores`, or empty for the slots that each node registered."""
    controller: str = AUTO
    """gloo, mpi, or auto: mpi for ranks on the cores of one host, else gloo."""
    knobs: Knobs = dataclasses.field(default_factory=Knobs)
    preflight: str = "auto"
    """auto, full or skip."""

    def __post_init__(self) -> None:
        if self.ranks_per_node not in ("", CORES):
            parse_whole("--ranks-per-node", self.ranks_per_node, lowest=1, highest=MOST_SLOTS)
        if both := {name for name, _ in self.environment} & set(self.secrets):
            raise UsageError("--secret", min(both), "is given with --env too; give it once")
        if self.controller not in (*CONTROLLERS, AUTO):
            raise UsageError("--controller", self.controller, f"must be {', '.join(CONTROLLERS)} or {AUTO}")
        if self.knobs.hierarchical_allreduce:
            rule = "needs Horovod built for GPUs, which the nodes' is not; it would ignore this"
            raise UsageError("--hierarchical-allreduce", None, rule)
        if self.knobs.hierarchical_allgather and self.controller != MPI:
            raise UsageError("--hierarchical-allgather", None, "needs --controller mpi; over Gloo Horovod ignores it")


def build(
    stack: Stack,
    work: Training | Program,
    nodes: Sequence[Node],
    count: int,
    *,
    agent: str,
    tree: str,
    terms: Terms,
    cores: Mapping[str, int] | None = None,
    now: datetime.datetime,
    token: str,
    git_commit: str,
) -> RunSpec:
    """Build the spec of a run on the first `count` workers; `agent` and `tree`, the work's own, name the pushed trees.

    `cores` are those of each node by its name, where the terms ask for a rank on each.
    """
    hosts = registered = choose_hosts(nodes, count)
    if terms.ranks_per_node:
        given = terms.ranks_per_node
        wanted = None if given == CORES else parse_whole("--ranks-per-node", given, lowest=1, highest=MOST_SLOTS)
        hosts = tuple(dataclasses.replace(host, slots=wanted or (cores or {}).get(host.name, 1)) for host in hosts)
    # A node registers a slot for each GPU, or one: where it takes more, they are the cores'.
    on_cores = any(host.slots > before.slots for host, before in zip(hosts, registered, strict=True))
    run_id = make_run_id(now, work.label, token)
    return RunSpec(
        run_id=run_id,
        efs_mount=stack.efs_mount,
        agent=agent,
        payload="" if isinstance(work, Program) else tree,
        program=tree if isinstance(work, Program) else "",
        command=work.command(f"{stack.runs_root}/{run_id}"),
        hosts=hosts,
        interface=meeting_interface(nodes),
        network=common_network(nodes),
        recipe=work.label,
        git_commit=git_commit,
        environment=(
            ("DEEPCDK_GIT_COMMIT", git_commit),
            ("DEEPCDK_PAYLOAD_HASH", tree),
            *terms.environment,
        ),
        controller=best_controller(count, on_cores=on_cores) if terms.controller == AUTO else terms.controller,
        knobs=terms.knobs,
        preflight=terms.preflight,
        requirements=work.requirements if isinstance(work, Program) else "",
        keras=work.keras if isinstance(work, Program) else 3,
        secrets=terms.secrets,
        ranks_per_node=max(host.slots for host in hosts) if terms.ranks_per_node else 0,
    )


def dry_run_lines(nodes: Sequence[Node], count: int, specify: Callable[[Sequence[Node]], RunSpec]) -> Iterator[str]:
    """Yield what a launch on `count` workers would do: the growth, and horovodrun's command.

    Nodes that are not there yet are taken for copies of the ones that are, under the names that they will have.
    """
    there = workers(nodes)
    names = {node.name for node in there}
    like = there[0] if there else _UNKNOWN
    absent = [f"{WORKER_PREFIX}{index}" for index in range(1, count + 1) if f"{WORKER_PREFIX}{index}" not in names]
    added = [dataclasses.replace(like, name=name) for name in absent[: max(0, count - len(there))]]
    if added:
        yield f"# {len(there)} nodes are ready; these would be added first: {', '.join(node.name for node in added)}"
    spec = specify([*nodes, *added])
    if not there:
        spec = dataclasses.replace(spec, network="")  # No address of theirs is known yet.
    yield f"# in {spec.agent_directory} on the master, once RUNTIME is the same on all nodes:"
    yield shlex.join(horovodrun(spec, RUNTIME_PYTHON))
    yield f"# and each rank then turns, in {spec.working_directory}, into:"
    yield shlex.join(rank_command(spec, RUNTIME_PYTHON))


def supervisor(stack: Stack, *arguments: str) -> list[str]:
    """Build a command line of the master's supervisor; it runs in a pushed tree."""
    return [NODE_PYTHON, "-m", "agent.supervisor.cli", "--root", stack.runs_root, *arguments]


def git_commit(project: Path) -> str:
    """Return the project's commit, with a `+` where files differ from it; empty without git."""
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=project, capture_output=True, text=True, timeout=10, check=True
        )
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
