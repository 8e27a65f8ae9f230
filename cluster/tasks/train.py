"""The tasks that start training."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from agent.spec.bounds import Bounds
from agent.spec.horovod import Knobs
from agent.spec.nodes import Node, workers
from agent.spec.remote_command import RemoteCommand
from agent.spec.run import RunSpec
from cluster.aws.notify import resolve_topics
from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Notify, Queue, Set, Yes, task
from cluster.nodes.grow import ensure_nodes
from cluster.nodes.occupancy import Occupancy
from cluster.nodes.worker_group import check_maximum, parse_nodes_argument
from cluster.polling import in_background
from cluster.programs.program import Program
from cluster.programs.program_environment import kind_of_hosts, pack
from cluster.programs.program_packages import RUNTIME
from cluster.runs.bounds import check_prices, stop_policy
from cluster.runs.dry_run import dry_run_lines
from cluster.runs.environment import parse_environment, read_secrets
from cluster.runs.fault_cost import describe_of_program
from cluster.runs.run_options import CORES, BoundOptions, Preflight, RankOptions, RestartOptions, RunOptions
from cluster.runs.run_spec import specify
from cluster.runs.supervisor import Supervisor
from cluster.runs.work import ProgramFlags, RecipeFlags, Training, read_work
from cluster.session import Session
from cluster.ssh import fanout
from cluster.ssh.fanout import words_after_dashes
from cluster.ssh.master import Master
from cluster.ssh.push import Tree, checked_file, package_tree
from cluster.tasks.launch import Following, Launch
from cluster.terminal.output import print_result, print_sentence, progress_printer
from cluster.terminal.status_line import doing


@task()
def push(set_: Set = (), json: Json = False, key: Key = "") -> None:
    """
    Upload the agent and the payload to the shared file system, each once per content.

    Example: fab push
    """
    session = Session(PROJECT, set_, key=key)
    trees = [session.agent_tree, package_tree(PROJECT / "payload", checked_file(Path.home()))]
    with session.connect() as master:
        began = time.monotonic()
        session.find_pushed(master, trees)
        terminal = sys.stdout.isatty() and not json
        agent, payload = [session.push(master, tree, progress_printer(json=json), terminal=terminal) for tree in trees]
        seconds = round(time.monotonic() - began, 3)
    if json:
        document = {**payload.to_document(), "seconds": seconds, "agent": agent.to_document()}
        print_result(document, json=True)
        return
    for pushed in (agent, payload):
        print_sentence(f"{pushed}: {pushed.tree.files} files at {pushed.directory}")


@task(takes_words=True, short_flags=False)
def train(
    *,
    set_: Set = (),
    nodes: Annotated[str, "worker nodes to train on; the group grows to it, after asking"] = "2",
    recipe: RecipeFlags,
    program: ProgramFlags,
    ranks: RankOptions,
    env: Annotated[
        tuple[str, ...],
        "variable for the ranks, as NAME=VALUE; may be repeated, and shows on no command line of the nodes",
    ] = (),
    secret: Annotated[
        tuple[str, ...],
        "variable for the ranks from your environment, as NAME, or from a file, as NAME=@FILE; in no record",
    ] = (),
    knobs: Knobs,
    queue: Queue = False,
    preflight: Preflight,
    restarts: RestartOptions,
    bounds: BoundOptions,
    notify: Notify = (),
    yes: Yes = False,
    dry_run: Annotated[bool, "show the launcher's command and launch nothing"] = False,
    following: Following,
    key: Key = "",
) -> None:
    """
    Train on N nodes, a recipe or a program of your own, and watch the run, which goes on without the laptop.

    Example: fab train --nodes 4 --recipe digits --epochs 20

    Example: fab train --recipe imagenet-fast --data-dir /mnt/efs/data/imagenet -- --precision bfloat16 --xla

    Example: fab train --nodes 16 --payload ~/project --entry "train.py --batch-size 64"
    """
    session = Session(PROJECT, set_, key=key)
    count = parse_nodes_argument(nodes)
    work = read_work(recipe, program, words_after_dashes(sys.argv), ranks)
    secrets = read_secrets(secret, os.environ)
    options = RunOptions(
        environment=parse_environment(env),
        secrets=tuple(secrets),
        ranks=ranks,
        knobs=knobs,
        preflight=preflight,
        restarts=restarts,
        bounds=bounds.over(Bounds()),
        notify=notify,
        then_stop=bounds.then_stop or session.config.then_stop,
    )
    restarts.check(count)
    in_background(lambda: session.agent_tree)  # packed while AWS answers
    progress = progress_printer(json=following.json)
    tree, environment = pack_work(PROJECT / "payload", work, progress), RUNTIME
    check_maximum(count, session.load_inventory(), session.config.max_workers)
    session.prices.begin(session.instance_types)
    source = work.directory if isinstance(work, Program) else PROJECT
    launch = Launch(session, source, following)
    if not dry_run:
        stop_policy(session.stack, wanted=options.then_stop)
        resolve_topics(options.notify, session.stack)
        check_prices(options.bounds, [*session.instance_types, *session.config.worker_types], session.prices)

    def specified(found: Sequence[Node], on: int = count) -> RunSpec:
        return specify(
            session.stack,
            work,
            found,
            on,
            agent=session.agent_tree.name,
            tree=tree.name,
            options=options,
            source=source,
            environment=environment,
            cores=count_cores(session.supervisor(master)) if ranks.ranks_per_node == CORES else {},
        )

    with session.connect() as master:
        if isinstance(work, Program):
            look = functools.partial(session.nodes, master)
            packed = pack(work, look, count, ranks.launcher, project=PROJECT, report=launch.progress)
            tree, environment = packed.tree, packed.environment
        if dry_run:
            lines = list(dry_run_lines(session.nodes(master), count, specified))
            print_result({"dry_run": lines}, "\n".join(lines), json=following.json)
            return
        ready = session.find_pushed(master, [session.agent_tree, tree]) and has_workers(session, master, count)
        supervisor = session.supervisor(master)
        # Before anything is uploaded or grown. Where nothing is, the start itself finds free nodes, or refuses sooner.
        occupied = Occupancy() if ready else supervisor.occupancy()
        size = occupied.size_for(count, session.load_inventory().desired_workers, queueing=queue)
        terminal = sys.stdout.isatty() and not following.json
        launch.progress(str(session.push(master, tree, launch.progress, terminal=terminal)))
        if isinstance(work, Training):
            launch.estimate(work.settings, count, ranks.ranks_per_node, restarts=restarts.count)
        else:
            launch.progress(describe_of_program(restarts.count))
        least = session.config.least_workers
        found = ensure_nodes(
            session,
            master,
            size,
            task="fab train",
            yes=yes,
            report=launch.progress,
            least=least and least + size - count,
        )
        found = occupied.choice(found, count, queueing=queue)
        if isinstance(work, Program) and packed.kind and kind_of_hosts(found, count) != packed.kind:
            # The workers that joined have another Python than the master, or than was to be expected.
            packed = pack(work, lambda: found, count, ranks.launcher, project=PROJECT, report=launch.progress)
            tree, environment = packed.tree, packed.environment
            session.push(master, tree, launch.progress, terminal=terminal)
        spec = launch.with_floors(specified(found, min(count, len(workers(found)))), preflight)
        submission = launch.submission(spec)
        with launch.submitting(spec.run_id):
            begun = supervisor.start(submission, secrets, queue=queue)
        text = f"run {spec.run_id}: {begun.placed(spec)}"
        launch.follow(supervisor, spec.run_id, begun.position, text, log=bool(spec.program))


def has_workers(session: Session, master: Master, count: int) -> bool:
    """Return whether so many workers are live, without a word of any that is left out: `ensure_nodes` tells of them."""
    return len(workers(session.nodes(master, lambda _: None))) >= count


def count_cores(supervisor: Supervisor) -> dict[str, int]:
    """Return by each worker's name how many cores a process there may use."""
    with doing("counting the nodes' cores"):
        results = fanout.run(supervisor.master, supervisor.directory, RemoteCommand(command=("nproc",)), None)
    if any(result.failed for result in results):
        raise fanout.CommandFailedError(results)
    return {result.name: int(result.stdout) for result in results}


def pack_work(payload: Path, work: Training | Program, progress: Callable[[str], None]) -> Tree:
    """Check and pack what is to run: the payload for a recipe, else the user's program."""
    if not isinstance(work, Program):
        return package_tree(payload, checked_file(Path.home()))
    _, links = work.survey()
    if links:
        shown = ", ".join(map(str, links[:3])) + (", ..." if links[3:] else "")
        progress(f"left out of the upload: {len(links)} symbolic links ({shown})")
    return work.tree()
