"""From a task's arguments to the commands that the master gets. Pure, but for reading the commit."""

from __future__ import annotations

import dataclasses
import datetime
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from agent.errors import ReportedError
from agent.launch.horovodrun_command import horovodrun
from agent.spec.horovod import CONTROLLERS, MPI, Knobs, best_controller
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
    """A recipe to train, and the arguments of `payload.train` that change it."""

    recipe: str = "digits"
    arguments: tuple[str, ...] = ()

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
        return ("-m", "payload.train", "--recipe", self.recipe, "--run-dir", run_directory, *self.arguments)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeFlags:
    """The flags of `fab train` for a recipe, as they are typed; what is left empty is the recipe's own."""

    recipe: Annotated[str, "what to train, of `fab recipes`; default: digits"] = ""
    epochs: Annotated[str, "epochs; default: the recipe's"] = ""
    batch_per_rank: Annotated[str, "images per step and rank; default: the recipe's"] = ""
    learning_rate: Annotated[
        str, "learning rate at the recipe's batch, scaled with the global batch; default: the recipe's"
    ] = ""
    seed: Annotated[str, "seed of weights and shuffling; default: the recipe's"] = ""
    data_dir: Annotated[str, "directory of the data on the nodes, for recipes that need one"] = ""
    args: Annotated[str, "settings of the recipe, as one shell-quoted string; words after -- do the same unquoted"] = ""

    def training(self, further: Sequence[str] = ()) -> Training:
        """Return the recipe with these flags, then --args, then the words after `--`."""
        flags = [word for name, text in given(self) if name not in ("--recipe", "--args") for word in (name, text)]
        return Training(recipe=self.recipe or Training.recipe, arguments=(*flags, *split_args(self.args), *further))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramFlags:
    """The flags of `fab train` for a program of the user's own, as they are typed."""

    payload: Annotated[str, "directory of a program of your own, to run in place of a recipe"] = ""
    entry: Annotated[
        str, "what each rank runs in it, such as 'train.py --epochs 3'; words after -- follow unchanged"
    ] = ""
    requirements: Annotated[
        str, "the program's requirements file; default: requirements.txt where its directory has one"
    ] = ""
    keras: Annotated[str, "what tf.keras and keras mean to the program: 3, or 2"] = ""


def given(flags: RecipeFlags | ProgramFlags) -> list[tuple[str, str]]:
    """Return the flags that are not left empty, each with its text."""
    return [(f"--{name.replace('_', '-')}", text) for name, text in dataclasses.asdict(flags).items() if text]


def read_work(recipe: RecipeFlags, program: ProgramFlags, further: Sequence[str]) -> Training | Program:
    """Return what is to run: the user's program, or else a recipe. Raises UsageError for flags of both."""
    if not program.payload:
        for flag, text in given(program):
            raise UsageError(flag, text, "needs --payload DIRECTORY, the one with your program")
        return recipe.training(further)
    for flag, text in given(recipe):
        rule = "is a recipe's; a program of your own takes its arguments in --entry or after --"
        raise UsageError(flag, text, rule)
    return Program.from_arguments(
        program.payload, program.entry, further, requirements=program.requirements, keras=program.keras
    )


def split_args(text: str) -> tuple[str, ...]:
    """Split --args as a shell would, without ever giving it to one. Raises UsageError for an open quote."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError("--args", text, f"cannot be split into words: {error}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preflight:
    """Which checks of the nodes go before a run."""

    skip_preflight: Annotated[bool, "do not look at the nodes before the run"] = False
    full_preflight: Annotated[bool, "prove an allreduce even where these nodes have done so since their boot"] = False

    def __post_init__(self) -> None:
        if self.skip_preflight and self.full_preflight:
            raise UsageError("--skip-preflight", None, "leaves out what --full-preflight asks for; give one of them")

    @property
    def mode(self) -> str:
        """Return auto, full or skip, as a run's spec has it."""
        return "skip" if self.skip_preflight else "full" if self.full_preflight else "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankOptions:
    """How many ranks a node has, and over what they meet."""

    ranks_per_node: Annotated[str, "a number, or cores; default: one a GPU, or one where a node has none"] = ""
    controller: Annotated[
        str, "what the ranks meet and add up over: gloo, mpi (Open MPI), or auto: mpi for cores of one node"
    ] = AUTO

    def __post_init__(self) -> None:
        if self.ranks_per_node not in ("", CORES):
            parse_whole("--ranks-per-node", self.ranks_per_node, lowest=1, highest=MOST_SLOTS)
        if self.controller not in (*CONTROLLERS, AUTO):
            raise UsageError("--controller", self.controller, f"must be {', '.join(CONTROLLERS)} or {AUTO}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is launched, whatever it runs."""

    environment: tuple[tuple[str, str], ...] = ()
    """Variables for the ranks."""
    secrets: tuple[str, ...] = ()
    """Names of the variables whose values are in no record."""
    ranks: RankOptions = dataclasses.field(default_factory=RankOptions)
    knobs: Knobs = dataclasses.field(default_factory=Knobs)
    preflight: Preflight = dataclasses.field(default_factory=Preflight)

    def __post_init__(self) -> None:
        if both := {name for name, _ in self.environment} & set(self.secrets):
            raise UsageError("--secret", min(both), "is given with --env too; give it once")
        if self.knobs.hierarchical_allreduce:
            rule = "needs Horovod built for GPUs, which the nodes' is not; it would ignore this"
            raise UsageError("--hierarchical-allreduce", None, rule)
        if self.knobs.hierarchical_allgather and self.ranks.controller != MPI:
            raise UsageError("--hierarchical-allgather", None, "needs --controller mpi; over Gloo Horovod ignores it")


def build(
    stack: Stack,
    work: Training | Program,
    nodes: Sequence[Node],
    count: int,
    *,
    agent: str,
    tree: str,
    options: RunOptions,
    cores: Mapping[str, int] | None = None,
    now: datetime.datetime,
    token: str,
    git_commit: str,
) -> RunSpec:
    """Build the spec of a run on the first `count` workers; `agent` and `tree`, the work's own, name the pushed trees.

    `cores` are those of each node by its name, where the options ask for a rank on each.
    """
    hosts = registered = choose_hosts(nodes, count)
    ranks_per_node, controller = options.ranks.ranks_per_node, options.ranks.controller
    if ranks_per_node:
        wanted = None if ranks_per_node == CORES else int(ranks_per_node)
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
            *options.environment,
        ),
        controller=best_controller(count, on_cores=on_cores) if controller == AUTO else controller,
        knobs=options.knobs,
        preflight=options.preflight.mode,
        requirements=work.requirements if isinstance(work, Program) else "",
        keras=work.keras if isinstance(work, Program) else 3,
        secrets=options.secrets,
        ranks_per_node=max(host.slots for host in hosts) if ranks_per_node else 0,
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
