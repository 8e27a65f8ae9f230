"""What to train, on how many nodes and how, and the steps from that to the spec of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.spec.horovod import Knobs
from agent.spec.laptop_requests import RemoteCommand
from agent.spec.launchers import APART, HOROVOD, PLAIN, REQUIRED
from agent.spec.nodes import NODE_PYTHON, Node, workers
from agent.spec.run import RunSpec
from cluster.aws.notify_flag import resolve_topics
from cluster.cli import CODE, FOR_NODES
from cluster.errors import UsageError
from cluster.nodes.occupancy import Occupancy
from cluster.polling import in_background
from cluster.programs.environment_choice import PackedProgram, kind_of_hosts, pack
from cluster.programs.python_environment import RUNTIME
from cluster.programs.user_program import Program
from cluster.runs.fault_cost import describe_of_program
from cluster.runs.launch import Following, Launch
from cluster.runs.limit_checks import stop_policy
from cluster.runs.recipe_or_program import Training
from cluster.runs.run_options import (
    AUTO,
    CORES,
    RankOptions,
    RunOptions,
)
from cluster.runs.run_spec import Stamp, specify
from cluster.runs.supervisor_client import Supervisor
from cluster.session import Session
from cluster.ssh import command_on_nodes
from cluster.ssh.master import Master
from cluster.ssh.push import package_tree
from cluster.terminal.confirmation import confirm
from cluster.terminal.status_line import doing
from stacks.instance_types import find

PRINT_CORES: Final = """
import os, pathlib
from agent.hardware import topology
print(len(topology.read_topology(pathlib.Path("/"), os.sched_getaffinity(0)).cores))
"""
"""Python program that prints the number of physical cores that it may use. It needs the agent's tree in PYTHONPATH."""


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
        """Return the directory of the code to train: the program's, or deepcdk's own for a recipe."""
        return self.work.directory if isinstance(self.work, Program) else CODE

    def check_together(self, session: Session, *, yes: bool, report: Callable[[str], None]) -> str:
        """Check a program's files and syntax, before the slow steps. Ask if its ranks would not train together.

        On one node, that matters only if the node has several ranks, which is not known yet. In this case, nothing is
        asked, and the reason is returned for `check_nodes`. Otherwise, "" is returned. Raises DeepcdkError, for example
        if the answer is not yes.
        """
        in_background(lambda: session.agent_tree)  # pack it while AWS answers
        if isinstance(self.work, Program):
            self.work.tree()
        trouble = self.trouble()
        if self.nodes == 1 and self.options.ranks.ranks_per_node in ("", "1"):
            return "" if self.options.ranks.ranks_per_node else trouble
        if trouble:
            ask_to_train_apart(trouble, self.options.ranks, yes=yes, report=report)
        return ""

    def trouble(self) -> str:
        """Return why the program's ranks would not train together, or "" if there is no sign of that.

        Always "" for recipes, and with --together=no.
        """
        ranks = self.options.ranks
        if not isinstance(self.work, Program) or ranks.together == APART:
            return ""
        variables = dict(self.options.environment)
        return self.work.joining.trouble(ranks.launcher, ranks.controller, nodes=self.nodes, variables=variables)

    def check_nodes(
        self, session: Session, master: Master, trouble: str, *, yes: bool, report: Callable[[str], None]
    ) -> None:
        """Ask if the program's ranks would not train together on the nodes, or if it needs GPUs that they lack.

        `trouble` is from `check_together`. With `yes` it only prints warnings; with `--together require` it only warns
        of ranks that would not train together. Raises DeepcdkError unless the answer is yes.
        """
        if trouble and any(node.slots > 1 for node in workers(session.nodes(master))):
            ask_to_train_apart(trouble, self.options.ranks, yes=yes, report=report)
        if missing := self.missing_gpus(lambda: session.nodes(master), session.config.worker_types):
            ask_to_train_without_gpus(missing, yes=yes, report=report)

    def missing_gpus(self, nodes: Callable[[], Sequence[Node]], worker_types: Sequence[str]) -> str:
        """Return a sentence on the line of the program that needs GPUs if the nodes lack them; "" otherwise, and for a
        recipe.

        A need that only several ranks have does not count for a run on one node. Without workers, the cluster's
        `worker_types` decide.
        """
        needed = self.work.joining.needs_gpus if isinstance(self.work, Program) else []
        uses = [use for use in needed if self.nodes > 1 or not use.on_cpus]
        if not uses:
            return ""
        if workers(there := nodes()):
            kind = kind_of_hosts(there, self.nodes)
            lacking = kind is not None and not kind.has_gpus
        else:
            types = [find(name) for name in worker_types]
            lacking = all(each is not None and not each.gpus for each in types)
        instead = f" To train on CPUs, {uses[0].on_cpus}." if uses[0].on_cpus else ""
        return f"{uses[0]}, but the nodes have no GPU.{instead}" if lacking else ""

    def resolved(self, session: Session, notify: Sequence[str], *, then_stop: bool) -> TrainRequest:
        """Return the request with `notify` and the stop policy, both completed from the deployed stack.

        `notify` are the values of --notify; topics become ARNs. The workers are terminated after the run with
        `then_stop`, or with that key in cdk.json. Raises DeepcdkError if the stack lacks a topic or the policy.
        """
        stack, then_stop = session.stack, then_stop or session.config.then_stop
        options = dataclasses.replace(
            self.options, notify=resolve_topics(notify, stack), stop_policy=stop_policy(stack, wanted=then_stop)
        )
        return dataclasses.replace(self, options=options)

    def launch(self, session: Session, *, task: str, queue: bool, yes: bool, following: Following) -> Launch:
        """Return the `Launch` of this request, which starts to read prices and limits. The run is not launched yet."""
        return Launch(
            session,
            self.source,
            task=task,
            queue=queue,
            yes=yes,
            following=following,
            unrecorded=self.work.upload.secrets if isinstance(self.work, Program) else (),
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
        """Check and pack the code to run: the payload, or the program with its environment for `nodes`. Raises
        DeepcdkError.
        """
        if not isinstance(self.work, Program):
            tree = package_tree(FOR_NODES / "payload")
            return PackedProgram(tree=tree, environment=RUNTIME, kind=None)
        launcher, variables = self.options.ranks.launcher, [name for name, _ in self.options.environment]
        return pack(self.work, nodes, self.nodes, launcher, project=FOR_NODES, report=report, variables=variables)


def with_launcher(
    work: Training | Program, ranks: RankOptions, knobs: Knobs, report: Callable[[str], None]
) -> RankOptions:
    """Return the options with a launcher: the given one, or the one that fits the program's sources, which is reported.

    A recipe gets Horovod. If a program's entry starts a launcher itself, there is one rank per node, unless a number is
    given. Raises UsageError if the sources fit several launchers.
    """
    if not isinstance(work, Program):
        return dataclasses.replace(ranks, launcher=ranks.launcher or HOROVOD)
    if not (launcher := ranks.launcher):
        changed = [f"--{name.replace('_', '-')}" for name, value in vars(knobs).items() if value != vars(Knobs())[name]]
        given = ["--controller"] if ranks.controller != AUTO else changed
        launcher, why = work.joining.choose(next(iter(given), ""))
        report(f"launcher: {launcher}, because {why}")
    # An entry that starts a launcher itself needs one rank per node.
    is_own = launcher == PLAIN and work.joining.launchers and not ranks.ranks_per_node
    return dataclasses.replace(ranks, launcher=launcher, ranks_per_node="1" if is_own else ranks.ranks_per_node)


def ask_to_train_apart(trouble: str, ranks: RankOptions, *, yes: bool, report: Callable[[str], None]) -> None:
    """Ask whether to start a run with ranks that would not train together. `trouble` is the reason.

    Raises DeepcdkError unless the answer is yes. With `yes` or `--together require` it only prints a warning.
    """
    text = f"The ranks would not train together: {trouble}. Each rank would train its own model."
    if yes or ranks.together == REQUIRED:
        report(f"warning: {text}")
        return
    remedy = "change the program or --launcher; if each rank should train its own model, give --together=no (or --yes)"
    confirm(f"{text} Start the run anyway?", yes=False, remedy=remedy)


def ask_to_train_without_gpus(missing: str, *, yes: bool, report: Callable[[str], None]) -> None:
    """Ask whether to start a program on nodes without the GPUs that it needs. With `yes` it only prints a warning.

    Raises DeepcdkError unless the answer is yes.
    """
    if yes:
        report(f"warning: {missing}")
    confirm(f"{missing} Start the run anyway?", yes=yes, remedy="use workers with GPUs, or give --yes")


def prepared(
    request: TrainRequest,
    launch: Launch,
    master: Master,
    trouble: str,
    *,
    describe: Callable[[], None],
    size: int = 0,
) -> RunSpec:
    """Push the code, wait until the nodes are ready, and return the spec of the run, which is not started yet.

    Asks before large uploads, costs and doubtful runs. `trouble` is from `check_together`. `describe` is called before
    the cluster grows. `size` is the number of workers to have, if that is more than the run needs. Raises DeepcdkError.
    If too few nodes are free, it is raised before anything is uploaded.
    """
    session, nodes = launch.session, request.nodes
    packed = request.pack(lambda: session.nodes(master), launch.progress)
    request.check_nodes(session, master, trouble, yes=launch.yes, report=launch.progress)
    count = max(size, nodes)
    # If everything is pushed and enough workers are live, the supervisor's start finds free nodes or rejects the run.
    pushed = session.find_pushed(master, [session.agent_tree, *packed.trees])
    is_ready = pushed and len(workers(session.nodes(master, lambda _: None))) >= count
    occupied = Occupancy() if is_ready else session.supervisor(master).occupancy()
    launch.size_for(count, occupied)  # reject the run before anything is uploaded or grown
    for tree in packed.trees:
        launch.push(master, tree)
    describe()
    found = launch.free_nodes(master, count, occupied, least=session.config.least_workers)
    if packed.kind and packed.kind != kind_of_hosts(found, nodes):
        # The workers that joined have another Python than the master, or than expected.
        packed = request.pack(lambda: found, lambda _: None)  # the notes were printed the first time
        for tree in packed.trees:
            launch.push(master, tree)
    return launch.configured(specified(request, launch, master, packed, found))


def specified(
    request: TrainRequest, launch: Launch, master: Master, packed: PackedProgram, nodes: Sequence[Node]
) -> RunSpec:
    """Return the spec of the run on the requested number of these nodes, or on all workers if there are fewer.

    With one rank per core, the cores are counted on the nodes first. Raises the errors of `specify` and `count_cores`.
    """
    session = launch.session
    on_cores = request.options.ranks.ranks_per_node == CORES
    return specify(
        session.stack,
        request.work,
        nodes,
        min(request.nodes, len(workers(nodes))),
        agent=session.agent_tree.name,
        tree=packed.tree.name,
        wheels=packed.wheels.name if packed.wheels else "",
        options=request.options,
        stamp=Stamp.of(request.source),
        environment=packed.environment,
        cores=count_cores(session.supervisor(master), session.agent_directory) if on_cores else {},
    )


def count_cores(supervisor: Supervisor, agent_directory: str) -> dict[str, int]:
    """Return the number of physical cores that a process may use on each worker, by the worker's name.

    `agent_directory` contains the agent on the workers. Raises CommandFailedError.
    """
    command = RemoteCommand(command=(NODE_PYTHON, "-c", PRINT_CORES), environment=(("PYTHONPATH", agent_directory),))
    with doing("counting the nodes' cores"):
        results = command_on_nodes.run(supervisor.master, supervisor.directory, command, None)
    if any(result.failed for result in results):
        raise command_on_nodes.CommandFailedError(results)
    return {result.name: int(result.stdout) for result in results}
