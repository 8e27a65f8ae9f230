"""The tasks that watch a run, and that go on with one."""

from __future__ import annotations

import dataclasses
import json as json_format
import os
from typing import Annotated

from agent.spec.nodes import choose_hosts
from agent.spec.resume import resume_point, resumed_spec
from agent.spec.run import RunSpec
from agent.spec.states import LIVE_STATES, QUEUED
from cluster.aws.notify import check_notify, resolve_topics
from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Notify, Queue, RunId, Set, Yes, task
from cluster.errors import DeepcdkError, LiveRunError
from cluster.nodes.grow import ensure_nodes
from cluster.nodes.worker_group import check_maximum, parse_nodes_argument
from cluster.runs.bounds import check_left, check_prices, stop_policy
from cluster.runs.environment import check_secrets, read_secrets
from cluster.runs.run_id import check_run_id
from cluster.runs.run_options import BoundOptions, Preflight, parse_stall_minutes
from cluster.session import Session
from cluster.tasks.launch import Following, Launch, watch_to_end


@task(word="--run")
def attach(set_: Set = (), run: RunId = "", json: Json = False, key: Key = "") -> None:
    """
    Watch a run from its start to its end.

    Example: fab attach 20261120-121314-digits-ab12
    """
    check_run_id(run)
    session = Session(PROJECT, set_, key=key)
    session.prices.begin(session.instance_types)
    with session.connect() as master:
        supervisor = session.supervisor(master)
        record = supervisor.show(run)
        run_id, log = str(record["run_id"]), bool((record.get("spec") or {}).get("program"))
        watch_to_end(session, supervisor, run_id, log=log, json=json)


@task(word="--run")
def resume(
    *,
    set_: Set = (),
    secret: Annotated[
        tuple[str, ...], "one of the run's secrets again, as NAME or NAME=@FILE: none is kept when a run ends"
    ] = (),
    run: Annotated[str, "id of the run; default: the newest"] = "",
    nodes: Annotated[str, "workers that take part; default: as many as before"] = "",
    queue: Queue = False,
    bounds: BoundOptions,
    stall_minutes: Annotated[
        str, "kill a rank that made no progress for so many minutes; 0: never; default: as before"
    ] = "",
    notify: Notify = (),
    preflight: Preflight,
    yes: Yes = False,
    following: Following,
    key: Key = "",
) -> None:
    """
    Go on with a stopped or failed run, from its last checkpoint, in its own directory.

    It takes as many nodes as before, or --nodes, growing the group after asking. On another number of ranks a
    recipe keeps its images a step, dealt out anew. What its earlier attempts took counts towards --max-cost and
    --max-hours, which stay as they were unless given.

    Example: fab resume 20261120-121314-digits-ab12
    """
    check_run_id(run)
    session = Session(PROJECT, set_, key=key)
    wanted = parse_nodes_argument(nodes) if nodes else 0
    secrets = read_secrets(secret, os.environ)
    stall_after_s = parse_stall_minutes(stall_minutes) if stall_minutes else None
    check_notify(notify)
    told = resolve_topics(notify, session.stack)
    check_maximum(wanted, session.load_inventory(), session.config.max_workers)
    session.prices.begin(session.instance_types)
    launch = Launch(session, PROJECT, following)
    with session.connect() as master:
        supervisor = session.supervisor(master)
        occupied = supervisor.occupancy()
        record = supervisor.show(run)
        run_id, count = str(record["run_id"]), wanted or len(record["state"]["hosts"])
        if not record.get("spec"):
            raise DeepcdkError(f"run {run_id} has no spec any more, and cannot go on", where=record["directory"])
        if record["state"]["state"] == "succeeded":
            raise DeepcdkError(f"run {run_id} has succeeded; there is nothing left to go on with")
        if record["state"]["state"] in LIVE_STATES or record["state"]["state"] == QUEUED:
            raise LiveRunError(run_id, queued=record["state"]["state"] == QUEUED)
        check_maximum(count, session.load_inventory(), session.config.max_workers)
        size = occupied.size_for(count, session.load_inventory().desired_workers, queueing=queue)
        before = RunSpec.from_json(json_format.dumps(record["spec"]))
        then_stop = bounds.then_stop or bool(before.stop_policy) or session.config.then_stop
        policy = stop_policy(session.stack, wanted=then_stop)
        before = dataclasses.replace(
            before, bounds=bounds.over(before.bounds), stop_policy=policy, notify=told or before.notify
        )
        if stall_after_s is not None:
            before = dataclasses.replace(before, stall_after_s=stall_after_s)
        check_prices(before.bounds, [*session.instance_types, *session.config.worker_types], session.prices)
        check_left(before, record.get("spent"))
        found = ensure_nodes(session, master, size, task="fab resume", yes=yes, report=launch.progress)
        ready = occupied.choice(found, count, queueing=queue)
        check_secrets(run_id, record["spec"].get("secrets") or [], secrets)
        hosts, agent = choose_hosts(ready, count), session.agent_tree.name
        again = resumed_spec(before, ready, hosts, agent=agent, other_ranks=wanted > 0)
        spec = launch.with_floors(again, preflight)
        submission = launch.submission(spec)
        with launch.submitting(run_id):
            begun = supervisor.resume(submission, secrets, queue=queue)
        since = resume_point(spec, begun.checkpoints)
        text = f"run {run_id} goes on {since}: {begun.placed(spec)}"
        launch.follow(supervisor, run_id, begun.position, text, log=False)
