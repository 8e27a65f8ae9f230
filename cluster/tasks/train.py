"""The tasks that upload programs and start training."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from agent.spec.nodes import Node, workers
from agent.spec.remote_command import RemoteCommand
from agent.spec.run import RunSpec
from cluster.cli import FOR_NODES, PROJECT
from cluster.cli.flags import whole
from cluster.cli.task import Json, Key, Queue, Set, Yes, task
from cluster.nodes.occupancy import Occupancy
from cluster.nodes.worker_group import check_maximum
from cluster.programs.program import Program
from cluster.programs.program_environment import PackedProgram, kind_of_hosts
from cluster.runs.dry_run import dry_run_lines, with_planned
from cluster.runs.run_options import (
    CORES,
)
from cluster.runs.run_spec import Stamp, specify
from cluster.runs.supervisor import Supervisor
from cluster.session import Session, confirm
from cluster.ssh import fanout
from cluster.ssh.fanout import words_after_dashes
from cluster.ssh.master import Master
from cluster.ssh.push import Tree, checked_file, package_tree
from cluster.tasks.launch import Following, Launch
from cluster.tasks.train_request import TrainFlags, TrainRequest, ask_to_train_apart
from cluster.terminal.output import print_result, print_sentence, progress_printer
from cluster.terminal.paths import resolved
from cluster.terminal.status_line import doing


@task()
def push(
    set_: Set = (),
    payload: Annotated[str, "directory of your program; default: upload the recipes"] = "",
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Upload the agent and the payload to the shared file system. Content that is already there is not uploaded.

    Example: fab push --payload ~/project
    """
    session, progress = Session(PROJECT, set_, key=key), progress_printer(json=json)
    if payload:
        program = Program(directory=resolved(payload), entry=("true",))
        for note in program.upload.notes():
            progress(note)
        tree = program.tree()
    else:
        tree = package_tree(FOR_NODES / "payload", checked_file(Path.home()))
    trees = [session.agent_tree, tree]
    with session.connect() as master:
        began = time.monotonic()
        session.find_pushed(master, trees)
        session.confirm_upload(master, tree, progress, yes=yes)
        terminal = sys.stdout.isatty() and not json
        agent, pushed_payload = [session.push(master, each, progress, terminal=terminal) for each in trees]
        seconds = round(time.monotonic() - began, 3)
    if json:
        document = {**pushed_payload.to_document(), "seconds": seconds, "agent": agent.to_document()}
        print_result(document, json=True)
        return
    for pushed in (agent, pushed_payload):
        print_sentence(f"{pushed}: {pushed.tree.files} files at {pushed.directory}")


@task(takes_words=True, short_flags=False)
def train(
    *,
    set_: Set = (),
    nodes: Annotated[int, "worker nodes to train on; fab asks before it adds nodes", whole(lowest=1)] = 2,
    flags: TrainFlags,
    queue: Queue = False,
    yes: Yes = False,
    dry_run: Annotated[bool, "print the launcher's command, and launch nothing"] = False,
    following: Following,
    key: Key = "",
) -> None:
    """
    Train a recipe or your program on N nodes, and watch the run. The run continues without the laptop.

    Example: fab train --nodes 4 --recipe digits --epochs 20

    Example: fab train --recipe imagenet-fast --data-dir /mnt/efs/data/imagenet -- --precision bfloat16 --xla

    Example: fab train --nodes 16 --payload ~/project --entry "train.py --batch-size 64"
    """
    session, report = Session(PROJECT, set_, key=key), progress_printer(json=following.json)
    request = flags.request(flags.work(report, words_after_dashes(sys.argv)), nodes, report)
    trouble = request.check_together(session, yes=yes or dry_run, report=report)
    check_maximum(nodes, session.load_inventory(), session.config.max_workers)
    request = request.resolved(session, flags)
    launch = request.launch(session, task="fab train", queue=queue, yes=yes, following=following)
    if not dry_run:
        launch.check_prices(request.options.bounds)
    with session.connect() as master:
        if dry_run:
            packed = request.pack(lambda: session.nodes(master), launch.progress)
            for tree in packed.trees:
                if tree.is_large:
                    launch.progress(f"the upload is large: {tree.size_text}")
            there = session.nodes(master)
            spec = specified(request, launch, master, packed, with_planned(there, nodes))
            lines = list(dry_run_lines(there, spec))
            print_result({"dry_run": lines}, "\n".join(lines), json=following.json)
            return
        spec = prepared(request, launch, master, trouble, describe=lambda: request.describe(launch))
        supervisor = session.supervisor(master)
        begun = launch.submit(spec, lambda submission: supervisor.start(submission, request.secrets, queue=queue))
        text = f"run {spec.run_id}: {begun.placed(spec)}"
        launch.follow(supervisor, spec.run_id, begun.position, text, log=bool(spec.program))


def prepared(
    request: TrainRequest,
    launch: Launch,
    master: Master,
    trouble: str,
    *,
    describe: Callable[[], None],
    size: int = 0,
) -> RunSpec:
    """Push the code and return the spec of the run when its nodes are ready. Asks what has to be asked.

    `trouble` is from `check_together`. `describe` is called before the cluster grows. `size` is the number of workers
    to have, if that is more than the run needs.
    """
    session, nodes = launch.session, request.nodes
    packed = request.pack(lambda: session.nodes(master), launch.progress)
    if trouble and any(node.slots > 1 for node in workers(session.nodes(master))):
        ask_to_train_apart(trouble, request.options.ranks, yes=launch.yes, report=launch.progress)
    if missing := request.missing_gpus(lambda: session.nodes(master)):
        confirm(f"{missing} Start the run anyway?", yes=launch.yes, remedy="use workers with GPUs, or give --yes")
    found = ready_nodes(launch, master, packed.trees, max(size, nodes), describe)
    if packed.kind and packed.kind != kind_of_hosts(found, nodes):
        # The workers that joined have another Python than the master, or than expected.
        packed = request.pack(lambda: found, lambda _: None)  # the notes were printed the first time
        for tree in packed.trees:
            launch.push(master, tree)
    return launch.with_floors(specified(request, launch, master, packed, found))


def ready_nodes(
    launch: Launch, master: Master, trees: Sequence[Tree], count: int, describe: Callable[[], None]
) -> tuple[Node, ...]:
    """Push the trees, print the estimate, and return the nodes to train on when they are ready."""
    session = launch.session
    # If everything is pushed and enough workers are live, the supervisor's start finds free nodes or rejects the run.
    pushed = session.find_pushed(master, [session.agent_tree, *trees])
    is_ready = pushed and len(workers(session.nodes(master, lambda _: None))) >= count
    occupied = Occupancy() if is_ready else session.supervisor(master).occupancy()
    launch.size_for(count, occupied)  # reject the run before anything is uploaded or grown
    for tree in trees:
        launch.push(master, tree)
    describe()
    return launch.free_nodes(master, count, occupied, least=session.config.least_workers)


def specified(
    request: TrainRequest, launch: Launch, master: Master, packed: PackedProgram, nodes: Sequence[Node]
) -> RunSpec:
    """Return the spec of the run on these nodes."""
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
        cores=count_cores(session.supervisor(master)) if on_cores else {},
    )


def count_cores(supervisor: Supervisor) -> dict[str, int]:
    """Count the cores that a process may use on each worker. The keys are the workers' names."""
    with doing("counting the nodes' cores"):
        results = fanout.run(supervisor.master, supervisor.directory, RemoteCommand(command=("nproc",)), None)
    if any(result.failed for result in results):
        raise fanout.CommandFailedError(results)
    return {result.name: int(result.stdout) for result in results}
