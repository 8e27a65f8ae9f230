"""The tasks that start training."""

from __future__ import annotations

import json as json_format
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from agent.spec.nodes import Node, workers
from agent.spec.provenance import Submission
from agent.spec.remote_command import RemoteCommand
from agent.spec.run import RunSpec
from cluster.cli.task import (
    FULL_PREFLIGHT,
    JSON,
    KEY,
    PROJECT,
    QUEUE,
    SET,
    SKIP_PREFLIGHT,
    YES,
    guarded,
    say,
    tell,
    teller,
)
from cluster.errors import LiveRunError
from cluster.nodes.grow import ensure_nodes
from cluster.nodes.worker_group import check_maximum, parse_nodes_argument
from cluster.runs import provenance
from cluster.runs.environment import parse_environment, read_secrets
from cluster.runs.launch import CORES, Terms, Training, dry_run_lines, parse_knobs, parse_preflight, read_work
from cluster.runs.program import Program
from cluster.runs.run_spec import specify
from cluster.runs.supervisor import Supervisor
from cluster.runs.watch import watch
from cluster.session import Session
from cluster.ssh import fanout
from cluster.ssh.fanout import words_after_dashes
from cluster.ssh.push import Tree, package_tree, sound_file
from cluster.tasks.attach import ask_ahead, caution, finish, leave, may_have_begun, say_turn
from cluster.terminal.status_line import doing, interruptible


@task(iterable=["set_"], help={"json": JSON, "set": SET, "key": KEY})
@guarded
def push(c: Context, set_: list[str], json: bool = False, key: str = "") -> None:
    """
    Upload the agent and the payload to the shared file system, each once per content.

    Example: fab push
    """
    session = Session(PROJECT, set_, key=key)
    trees = [session.agent_tree, package_tree(PROJECT / "payload", sound_file(Path.home()))]
    with session.connect() as master:
        began = time.monotonic()
        session.look(master, trees)
        terminal = sys.stdout.isatty() and not json
        agent, payload = [session.push(master, tree, teller(json=json), terminal=terminal) for tree in trees]
        seconds = round(time.monotonic() - began, 3)
    if json:
        document = {**payload.to_document(), "seconds": seconds, "agent": agent.to_document()}
        say(json_format.dumps(document, indent=1))
        return
    for pushed in (agent, payload):
        tell(f"{pushed}: {pushed.tree.files} files at {pushed.directory}")


@task(
    iterable=["set_", "env", "secret"],
    auto_shortflags=False,  # one letter for each of so many would mean nothing
    help={
        "nodes": "worker nodes to train on; the group grows to it, after asking",
        "recipe": "what to train, of `fab recipes`; default: digits",
        "epochs": "epochs; default: the recipe's",
        "batch_per_rank": "images per step and rank; default: the recipe's",
        "learning_rate": "learning rate at the recipe's batch, scaled with the global batch; default: the recipe's",
        "seed": "seed of weights and shuffling; default: the recipe's",
        "data_dir": "directory of the data on the nodes, for recipes that need one",
        "args": "settings of the recipe, as one shell-quoted string; words after -- do the same unquoted",
        "payload": "directory of a program of your own, to run in place of a recipe",
        "entry": "what each rank runs in it, such as 'train.py --epochs 3'; words after -- follow unchanged",
        "requirements": "the program's requirements file; default: requirements.txt where its directory has one",
        "keras": "what tf.keras and keras mean to the program: 3, or 2",
        "ranks_per_node": "a number, or cores; default: one a GPU, or one where a node has none",
        "controller": "what the ranks meet and add up over: gloo, mpi (Open MPI), or auto: mpi for cores of one node",
        "secret": "variable for the ranks from your environment, as NAME, or from a file, as NAME=@FILE; in no record",
        "env": "variable for the ranks, as NAME=VALUE; may be repeated, and shows on no command line of the nodes",
        "fusion_threshold_mb": "Horovod: MiB of gradients that travel together; default: 128",
        "cycle_time_ms": "Horovod: ms between gatherings of gradients; default: by the step, 5 for a program of yours",
        "cache_capacity": "Horovod: tensors that need no negotiation any more; default: 1024",
        "hierarchical_allreduce": "Horovod: within hosts first, then between them; needs a GPU build over MPI",
        "hierarchical_allgather": "Horovod: the same for allgather; needs --controller mpi",
        "autotune": "Horovod: search these settings while training, into autotune.csv of the run",
        "timeline": "Horovod: record every collective in timeline.json of the run",
        "queue": QUEUE,
        "skip_preflight": SKIP_PREFLIGHT,
        "full_preflight": FULL_PREFLIGHT,
        "yes": YES,
        "follow": "watch the run to its end",
        "detach": "launch and return: the same as --no-follow",
        "dry_run": "show the horovodrun command and launch nothing",
        "json": JSON,
        "set": SET,
        "key": KEY,
    },
)
@guarded
def train(
    c: Context,
    set_: list[str],
    env: list[str],
    secret: list[str],
    nodes: str = "2",
    recipe: str = "",
    epochs: str = "",
    batch_per_rank: str = "",
    learning_rate: str = "",
    seed: str = "",
    data_dir: str = "",
    args: str = "",
    payload: str = "",
    entry: str = "",
    requirements: str = "",
    keras: str = "",
    ranks_per_node: str = "",
    controller: str = "auto",
    fusion_threshold_mb: str = "",
    cycle_time_ms: str = "",
    cache_capacity: str = "",
    hierarchical_allreduce: bool = False,
    hierarchical_allgather: bool = False,
    autotune: bool = False,
    timeline: bool = False,
    queue: bool = False,
    skip_preflight: bool = False,
    full_preflight: bool = False,
    yes: bool = False,
    follow: bool = True,
    detach: bool = False,
    dry_run: bool = False,
    json: bool = False,
    key: str = "",
) -> None:
    """
    Train on N nodes, a recipe or a program of your own, and watch the run, which goes on without the laptop.

    Example: fab train --nodes 4 --recipe digits --epochs 20

    Example: fab train --recipe imagenet-fast --data-dir /mnt/efs/data/imagenet -- --precision bfloat16 --xla

    Example: fab train --nodes 16 --payload ~/project --entry "train.py --batch-size 64"
    """
    session, inform = Session(PROJECT, set_, key=key), teller(json=json)
    count = parse_nodes_argument(nodes)
    work = read_work(
        payload,
        entry,
        words_after_dashes(sys.argv),
        {
            "recipe": recipe,
            "epochs": epochs,
            "batch_per_rank": batch_per_rank,
            "learning_rate": learning_rate,
            "seed": seed,
            "data_dir": data_dir,
            "args": args,
        },
        requirements=requirements,
        keras=keras,
    )
    secrets = read_secrets(secret, os.environ)
    terms = Terms(
        environment=parse_environment(env),
        secrets=tuple(secrets),
        ranks_per_node=ranks_per_node,
        controller=controller,
        knobs=parse_knobs(
            fusion_threshold_mb=fusion_threshold_mb,
            cycle_time_ms=cycle_time_ms,
            cache_capacity=cache_capacity,
            hierarchical_allreduce=hierarchical_allreduce,
            hierarchical_allgather=hierarchical_allgather,
            autotune=autotune,
            timeline=timeline,
        ),
        preflight=parse_preflight(skip=skip_preflight, full=full_preflight),
    )
    tree = pack_work(PROJECT / "payload", work, inform)
    check_maximum(count, session.inventory, session.config.max_workers)
    session.prices.begin(session.instance_types)
    bounded, roots = ask_ahead(session, work.directory if isinstance(work, Program) else PROJECT)

    cores: dict[str, int] = {}

    def specified(found: Sequence[Node], on: int = count) -> RunSpec:
        return specify(
            session,
            work,
            found,
            on,
            tree=tree.name,
            terms=terms,
            cores=cores,
        )

    with session.connect() as master:
        if dry_run:
            cores |= count_cores(session.supervisor(master)) if ranks_per_node == CORES else {}
            lines = list(dry_run_lines(session.nodes(master), count, specified))
            say(json_format.dumps({"dry_run": lines}, indent=1) if json else "\n".join(lines))
            return
        session.look(master, [session.agent_tree, tree])
        supervisor = session.supervisor(master)
        if not queue and (live := supervisor.live()):
            raise LiveRunError(live)
        inform(str(session.push(master, tree, inform, terminal=sys.stdout.isatty() and not json)))
        found = ensure_nodes(session, master, count, yes=yes, report=inform, least=session.config.least_workers)
        cores |= count_cores(supervisor) if ranks_per_node == CORES else {}
        caution(bounded.result(), inform)
        spec = specified(found, min(count, len(workers(found))))
        submission = Submission(spec=spec, origin=provenance.of(session, spec, roots.result()))
        with interruptible(may_have_begun(spec.run_id), inform):
            position = supervisor.start(submission, secrets, queue=queue)
        say_turn(spec.run_id, position, inform)
        inform(f"run {spec.run_id}: {spec.placed}")
        if follow and not detach:
            log = bool(spec.program)
            finish(
                session, spec.run_id, lambda: watch(session, supervisor, spec.run_id, log=log, aside=json), json=json
            )
        else:
            leave(spec.run_id, position, json=json)


def count_cores(supervisor: Supervisor) -> dict[str, int]:
    """Ask each worker how many cores a process of it may use."""
    with doing("counting the nodes' cores"):
        results = fanout.run(supervisor.master, supervisor.directory, RemoteCommand(command=("nproc",)), None)
    if any(result.failed for result in results):
        raise fanout.CommandFailedError(results)
    return {result.name: int(result.stdout) for result in results}


def pack_work(payload: Path, work: Training | Program, tell: Callable[[str], None]) -> Tree:
    """Check and pack what is to run: the payload for a recipe, else the user's program."""
    if not isinstance(work, Program):
        return package_tree(payload, sound_file(Path.home()))
    for trap in work.keras_traps():
        tell(f"Keras 3: {trap}")
    _, links = work.survey()
    if links:
        shown = ", ".join(map(str, links[:3])) + (", ..." if links[3:] else "")
        tell(f"left out of the upload: {len(links)} symbolic links ({shown})")
    return work.tree()
