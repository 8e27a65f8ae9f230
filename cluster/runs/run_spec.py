"""Build the spec of a new run from the command line's options and the live nodes."""

from __future__ import annotations

import dataclasses
import datetime
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.errors import SpecError
from agent.spec.horovod import GLOO, best_controller
from agent.spec.launchers import HOROVOD
from agent.spec.nodes import Node, choose_hosts, common_network, meeting_interface
from agent.spec.run import RunSpec
from agent.spec.run_id import make_run_id
from cluster.aws.stack import Stack
from cluster.errors import DeepcdkError
from cluster.programs.python_environment import RUNTIME, Environment
from cluster.programs.user_program import Program
from cluster.runs.provenance import git_commit
from cluster.runs.recipe_or_program import Benchmark, Training
from cluster.runs.run_options import AUTO, CORES, RunOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stamp:
    """What makes a run unique: its start time, a random token, and the commit of its code."""

    now: datetime.datetime
    token: str
    git_commit: str

    @classmethod
    def of(cls, source: Path) -> Stamp:
        """Return the stamp of a run that starts now, with code from the directory `source`."""
        return cls(now=datetime.datetime.now(datetime.UTC), token=secrets.token_hex(2), git_commit=git_commit(source))


def stored_spec(record: Mapping[str, Any], *, remedy: str) -> RunSpec:
    """Return the spec in the record of a run to resume.

    If it is missing or invalid, raises DeepcdkError with the run, the run's directory and `remedy`.
    """
    try:
        return RunSpec.from_json(json.dumps(record.get("spec")))
    except SpecError as error:
        raise DeepcdkError(
            f"run {record['run_id']} cannot be resumed: {error}", where=str(record["directory"]), remedy=remedy
        ) from None


def specify(
    stack: Stack,
    work: Training | Program | Benchmark,
    nodes: Sequence[Node],
    count: int,
    *,
    agent: str,
    tree: str,
    options: RunOptions,
    stamp: Stamp,
    cores: Mapping[str, int] | None = None,
    environment: Environment = RUNTIME,
    wheels: str = "",
) -> RunSpec:
    """Build the spec of a run on the first `count` workers. Its id is made from `stamp`.

    `agent` and `tree` name the pushed trees of the agent and of the work's own code. `cores` maps node names to core
    counts; it is needed for one rank per core. `environment` is a program's Python environment, and `wheels` names the
    pushed tree with its wheels. Raises SpecError if there are too few workers, or if they do not fit the options.
    """
    hosts = registered = choose_hosts(nodes, count)
    ranks_per_node, launcher = options.ranks.ranks_per_node, options.ranks.launcher or HOROVOD
    # Ranks that Horovod does not start have no controller. Gloo is the default value of the spec.
    controller = options.ranks.controller if launcher == HOROVOD else GLOO
    if ranks_per_node:
        wanted = None if ranks_per_node == CORES else int(ranks_per_node)
        hosts = tuple(dataclasses.replace(host, slots=wanted or (cores or {}).get(host.name, 1)) for host in hosts)
    # A node registers one slot per GPU, or one slot without GPUs. If a host has more, its ranks run on cores.
    on_cores = any(host.slots > before.slots for host, before in zip(hosts, registered, strict=True))
    run_id = make_run_id(stamp.now, work.label, stamp.token)
    program = work if isinstance(work, Program) else None
    return RunSpec(
        run_id=run_id,
        efs_mount=stack.efs_mount,
        agent=agent,
        payload="" if program else tree,
        program=tree if program else "",
        command=work.command(f"{stack.runs_root}/{run_id}"),
        entry_words=program.entry_words if program else 0,
        hosts=hosts,
        interface=meeting_interface(nodes),
        network=common_network(nodes),
        recipe=work.label,
        git_commit=stamp.git_commit,
        environment=(
            ("DEEPCDK_GIT_COMMIT", stamp.git_commit),
            ("DEEPCDK_PAYLOAD_HASH", tree),
            *options.environment,
        ),
        controller=best_controller(count, on_cores=on_cores) if controller == AUTO else controller,
        knobs=options.knobs,
        rank_launcher=launcher,
        together=options.ranks.together,
        placement=options.ranks.placement,
        own_gpu=options.ranks.own_gpu,
        preflight=options.preflight.mode,
        allow_degraded=options.preflight.allow_degraded,
        restarts=options.restarts.restarts,
        min_nodes=options.restarts.min_nodes,
        stall_after_s=60 * options.restarts.stall_minutes,
        bounds=options.bounds,
        notify=options.notify,
        stop_policy=options.stop_policy,
        keras=2 if program and needs_tf_keras(program, environment) else 3,
        locked=environment.over_runtime,
        wheels=wheels,
        own_environment=environment.own,
        horovod_for=environment.horovod_for,
        secrets=options.secrets,
        ranks_per_node=max(host.slots for host in hosts) if ranks_per_node else 0,
    )


def needs_tf_keras(program: Program, environment: Environment) -> bool:
    """Return whether tf.keras and keras must be redirected to the package tf-keras, which is Keras 2.

    On the nodes' runtime, this is so if the user chose Keras 2. In an environment of the program's own, it depends on
    whether tf-keras is installed there: TensorFlow 2.15 contains Keras 2 itself.
    """
    return environment.tf_keras if environment.own else program.keras == 2
