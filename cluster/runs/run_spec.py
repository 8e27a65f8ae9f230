"""The spec of a new run, from what the command line says and which nodes are live."""

from __future__ import annotations

import dataclasses
import datetime
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.errors import SpecError
from agent.spec.horovod import GLOO, best_controller
from agent.spec.launchers import HOROVOD
from agent.spec.nodes import Node, choose_hosts, common_network, meeting_interface
from agent.spec.run import RunSpec
from agent.spec.states import make_run_id
from cluster.aws.notify import resolve_topics
from cluster.aws.stack import Stack
from cluster.errors import DeepcdkError
from cluster.programs.program import Program
from cluster.programs.program_packages import RUNTIME, Environment
from cluster.runs.bounds import stop_policy
from cluster.runs.provenance import git_commit
from cluster.runs.run_options import AUTO, CORES, RunOptions
from cluster.runs.work import Benchmark, Training


def specify(
    stack: Stack,
    work: Training | Program | Benchmark,
    nodes: Sequence[Node],
    count: int,
    *,
    agent: str,
    tree: str,
    options: RunOptions,
    source: Path,
    cores: Mapping[str, int] | None = None,
    environment: Environment = RUNTIME,
) -> RunSpec:
    """Build the spec of a run that begins now; `source` is where its code is. Raises DeepcdkError."""
    try:
        return build(
            stack,
            work,
            nodes,
            count,
            agent=agent,
            tree=tree,
            options=options,
            cores=cores,
            environment=environment,
            now=datetime.datetime.now(datetime.UTC),
            token=secrets.token_hex(2),
            git_commit=git_commit(source),
        )
    except SpecError as error:
        raise DeepcdkError(str(error), remedy="`fab status` shows the nodes") from None


def build(
    stack: Stack,
    work: Training | Program | Benchmark,
    nodes: Sequence[Node],
    count: int,
    *,
    agent: str,
    tree: str,
    options: RunOptions,
    cores: Mapping[str, int] | None = None,
    environment: Environment = RUNTIME,
    now: datetime.datetime,
    token: str,
    git_commit: str,
) -> RunSpec:
    """Build the spec of a run on the first `count` workers; `agent` and `tree`, the work's own, name the pushed trees.

    `cores` are those of each node by its name, where the options ask for a rank on each; `environment` is that of a
    program.
    """
    hosts = registered = choose_hosts(nodes, count)
    ranks_per_node, launcher = options.ranks.ranks_per_node, options.ranks.launcher
    # Ranks that Horovod does not start have no controller; Gloo is the spec's plain value.
    controller = options.ranks.controller if launcher == HOROVOD else GLOO
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
        rank_launcher=launcher,
        placement=options.ranks.placement,
        own_gpu=options.ranks.own_gpu,
        preflight=options.preflight.mode,
        allow_degraded=options.preflight.allow_degraded,
        restarts=options.restarts.count,
        min_nodes=options.restarts.least,
        stall_after_s=options.restarts.stall_after_s,
        bounds=options.bounds,
        notify=resolve_topics(options.notify, stack),
        stop_policy=stop_policy(stack, wanted=options.then_stop),
        requirements=work.requirements if isinstance(work, Program) else "",
        keras=2 if isinstance(work, Program) and needs_tf_keras(work, environment) else 3,
        own_environment=environment.own,
        horovod_for=environment.horovod_for,
        secrets=options.secrets,
        ranks_per_node=max(host.slots for host in hosts) if ranks_per_node else 0,
    )


def needs_tf_keras(program: Program, environment: Environment) -> bool:
    """Return whether tf.keras and keras are to mean the package tf-keras; TensorFlow 2.15 has Keras 2 itself."""
    return environment.tf_keras if environment.own else program.keras == 2
