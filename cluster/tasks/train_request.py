"""A request for training: the flags that `fab train` and `fab sweep` have in common, and the checks before a run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from agent.spec.bounds import Bounds
from agent.spec.horovod import Knobs
from agent.spec.launchers import APART, HOROVOD, PLAIN, REQUIRED
from agent.spec.nodes import Node
from cluster.aws.notify import check_notify, resolve_topics
from cluster.cli import CODE, FOR_NODES, PROJECT
from cluster.cli.task import Notify
from cluster.errors import UsageError
from cluster.polling import in_background
from cluster.programs.program import Program
from cluster.programs.program_environment import PackedProgram, kind_of_hosts, pack
from cluster.programs.program_packages import RUNTIME
from cluster.runs.bounds import stop_policy
from cluster.runs.environment import parse_environment, read_secrets
from cluster.runs.fault_cost import describe_of_program
from cluster.runs.run_options import (
    AUTO,
    BoundOptions,
    PreflightOptions,
    RankOptions,
    RestartOptions,
    RunOptions,
)
from cluster.runs.work import ProgramFlags, RecipeFlags, Training, read_work
from cluster.session import Session, confirm
from cluster.ssh.push import checked_file, package_tree
from cluster.tasks.launch import Following, Launch


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainFlags:
    """Flags that `fab train` and `fab sweep` have in common, as typed: what each run trains, and how."""

    recipe: RecipeFlags
    program: ProgramFlags
    ranks: RankOptions
    env: Annotated[
        tuple[str, ...],
        "environment variable of the ranks, as NAME=VALUE; may be repeated. It is on no command line of the nodes",
    ] = ()
    secret: Annotated[
        tuple[str, ...],
        "secret environment variable of the ranks: NAME takes it from your environment, NAME=@FILE from a file. "
        "Records do not contain it",
    ] = ()
    knobs: Knobs
    preflight: PreflightOptions
    restarts: RestartOptions
    bounds: BoundOptions
    notify: Notify = ()

    def work(self, report: Callable[[str], None], further: Sequence[str]) -> Training | Program:
        """Return what to train; its flags are followed by `further`, the words after `--`. Raises DeepcdkError."""
        return read_work(self.recipe, with_payload(self.program, report), further, self.ranks)

    def request(self, work: Training | Program, nodes: int, report: Callable[[str], None]) -> TrainRequest:
        """Return the request for a run. Reads the secrets. Raises DeepcdkError."""
        secrets = read_secrets(self.secret, os.environ)
        options = RunOptions(
            environment=parse_environment(self.env),
            secrets=tuple(secrets),
            ranks=with_launcher(work, self.ranks, self.knobs, report),
            knobs=self.knobs,
            preflight=self.preflight,
            restarts=self.restarts,
            bounds=self.bounds.over(Bounds()),
        )
        check_notify(self.notify)
        return TrainRequest(work=work, nodes=nodes, options=options, secrets=secrets)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """What to train, on how many nodes and how: the flags of `fab train`, read before AWS is asked."""

    work: Training | Program
    nodes: int
    options: RunOptions
    secrets: Mapping[str, str]

    def __post_init__(self) -> None:
        if (least := self.options.restarts.min_nodes) > self.nodes:
            raise UsageError("--min-nodes", least, f"must not exceed the {self.nodes} nodes of the run")

    @property
    def source(self) -> Path:
        """Return the directory of the code to train."""
        return self.work.directory if isinstance(self.work, Program) else CODE

    @property
    def secret_files(self) -> tuple[str, ...]:
        """Return the files of the source that may contain passwords or keys."""
        return self.work.upload.secrets if isinstance(self.work, Program) else ()

    def check_together(self, session: Session, *, yes: bool, report: Callable[[str], None]) -> str:
        """Check a program's files and syntax, before the slow steps. Ask if its ranks would not train together.

        Return why they would not, if that depends on the nodes' ranks, else "". Raises DeepcdkError.
        """
        in_background(lambda: session.agent_tree)  # pack it while AWS answers
        if isinstance(self.work, Program):
            self.work.tree()
        trouble = self.trouble()
        if self.nodes == 1 and self.options.ranks.ranks_per_node in ("", "1"):
            return trouble
        if trouble:
            ask_to_train_apart(trouble, self.options.ranks, yes=yes, report=report)
        return ""

    def trouble(self) -> str:
        """Return why the program's ranks would not train together, or "" if there is no sign of that."""
        ranks = self.options.ranks
        if not isinstance(self.work, Program) or ranks.together == APART:
            return ""
        variables = dict(self.options.environment)
        return self.work.joining.trouble(ranks.launcher, ranks.controller, nodes=self.nodes, variables=variables)

    def missing_gpus(self, nodes: Callable[[], Sequence[Node]]) -> str:
        """Describe the line of the program that needs GPUs which the nodes lack; "" if there is none."""
        needed = self.work.joining.needs_gpus if isinstance(self.work, Program) else []
        uses = [use for use in needed if self.nodes > 1 or not use.on_cpus]
        if not uses:
            return ""
        kind = kind_of_hosts(nodes(), self.nodes)
        instead = f" To train on CPUs, {uses[0].on_cpus}." if uses[0].on_cpus else ""
        return f"{uses[0]}, but the nodes have no GPU.{instead}" if kind and not kind.has_gpus else ""

    def resolved(self, session: Session, flags: TrainFlags) -> TrainRequest:
        """Return the request completed from the deployed stack: topics and stop policy. Raises DeepcdkError if they are
        missing.
        """
        stack, then_stop = session.stack, flags.bounds.then_stop or session.config.then_stop
        options = dataclasses.replace(
            self.options, notify=resolve_topics(flags.notify, stack), stop_policy=stop_policy(stack, wanted=then_stop)
        )
        return dataclasses.replace(self, options=options)

    def launch(self, session: Session, *, task: str, queue: bool, yes: bool, following: Following) -> Launch:
        """Return the launch of this request, which begins to read prices and limits."""
        return Launch(
            session,
            self.source,
            task=task,
            queue=queue,
            yes=yes,
            following=following,
            unrecorded=self.secret_files,
        )

    def describe(self, launch: Launch) -> None:
        """Print the estimate of a recipe's run, or what a fault would cost a program."""
        options = self.options
        if isinstance(self.work, Training):
            ranks, restarts = options.ranks.ranks_per_node, options.restarts.restarts
            launch.estimate(self.work.settings, self.nodes, ranks, restarts=restarts)
        else:
            launch.progress(describe_of_program(options.restarts.restarts))

    def pack(self, nodes: Callable[[], Sequence[Node]], report: Callable[[str], None]) -> PackedProgram:
        """Check and pack the code to run: the payload, or the program with its environment for `nodes`."""
        if not isinstance(self.work, Program):
            tree = package_tree(FOR_NODES / "payload", checked_file(Path.home()))
            return PackedProgram(tree=tree, environment=RUNTIME, kind=None)
        launcher, variables = self.options.ranks.launcher, [name for name, _ in self.options.environment]
        return pack(self.work, nodes, self.nodes, launcher, project=FOR_NODES, report=report, variables=variables)


def with_payload(program: ProgramFlags, report: Callable[[str], None]) -> ProgramFlags:
    """Return the flags with the project as --payload if only --entry is given.

    A checkout of deepcdk, a home or the root directory is not used.
    """
    if program.payload or not program.entry or PROJECT in (CODE, Path.home().resolve(), Path(PROJECT.anchor)):
        return program
    report(f"payload: {PROJECT}, the project")
    return dataclasses.replace(program, payload=str(PROJECT))


def with_launcher(
    work: Training | Program, ranks: RankOptions, knobs: Knobs, report: Callable[[str], None]
) -> RankOptions:
    """Return the options with a launcher: the given one, or the one that fits the program's sources."""
    if not isinstance(work, Program):
        return dataclasses.replace(ranks, launcher=ranks.launcher or HOROVOD)
    if ranks.launcher:
        return with_one_rank(work, ranks)
    changed = [f"--{name.replace('_', '-')}" for name, value in vars(knobs).items() if value != getattr(Knobs(), name)]
    given = ["--controller"] if ranks.controller != AUTO else changed
    launcher, why = work.joining.choose(next(iter(given), ""))
    report(f"launcher: {launcher}, because {why}")
    return with_one_rank(work, dataclasses.replace(ranks, launcher=launcher))


def with_one_rank(work: Program, ranks: RankOptions) -> RankOptions:
    """Return the options with one rank per node if the entry starts a launcher itself, unless a number is given."""
    is_own = ranks.launcher == PLAIN and work.joining.launchers and not ranks.ranks_per_node
    return dataclasses.replace(ranks, ranks_per_node="1") if is_own else ranks


def ask_to_train_apart(trouble: str, ranks: RankOptions, *, yes: bool, report: Callable[[str], None]) -> None:
    """Ask whether to start a run with ranks that would not train together. Raises DeepcdkError unless the answer is
    yes.

    With `yes` or `--together require` it only prints a warning.
    """
    text = f"The ranks would not train together: {trouble}. Each rank would train its own model."
    if yes or ranks.together == REQUIRED:
        report(f"warning: {text}")
        return
    remedy = "change the program or --launcher; if each rank should train its own model, give --together=no (or --yes)"
    confirm(f"{text} Start the run anyway?", yes=False, remedy=remedy)
