"""The tasks that watch a run, and that go on with one."""

from __future__ import annotations

import dataclasses
import datetime
import json as json_format
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated

from invoke.exceptions import Exit

from agent.spec.nodes import choose_hosts
from agent.spec.provenance import Submission
from agent.spec.resume import resume_point, resumed_spec
from agent.spec.run import RunSpec
from agent.spec.states import LIVE_STATES, QUEUED
from cluster.aws import guard
from cluster.background import in_background
from cluster.cli.task import INTERRUPTED_STATUS, PROJECT, Json, Key, Queue, RunId, Set, Yes, task
from cluster.errors import DeepcdkError, LiveRunError
from cluster.nodes.grow import ensure_nodes
from cluster.nodes.worker_group import check_maximum, parse_nodes_argument
from cluster.runs import provenance
from cluster.runs.environment import check_secrets, read_secrets
from cluster.runs.follow import Picture
from cluster.runs.launch import Preflight
from cluster.runs.run_id import named
from cluster.runs.watch import describe_end, document, watch
from cluster.session import Session
from cluster.terminal.output import print_result, progress_printer
from cluster.terminal.status_line import interruptible
from cluster.terminal.wrap import fitted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Following:
    """Whether a run that was launched is watched, and what is printed of it."""

    follow: Annotated[bool, "watch the run to its end"] = True
    detach: Annotated[bool, "launch and return: the same as --no-follow"] = False
    json: Json = False

    @property
    def watched(self) -> bool:
        """Return whether to watch the run to its end."""
        return self.follow and not self.detach


@task(word="--run")
def attach(set_: Set = (), run: RunId = "", json: Json = False, key: Key = "") -> None:
    """
    Watch a run from its start to its end.

    Example: fab attach 20261120-121314-digits-ab12
    """
    named(run)
    session = Session(PROJECT, set_, key=key)
    session.prices.begin(session.instance_types)
    with session.connect() as master:
        supervisor = session.supervisor(master)
        record = supervisor.show(run)
        run_id, log = str(record["run_id"]), bool((record.get("spec") or {}).get("program"))
        finish(session, run_id, lambda: watch(session, supervisor, run_id, log=log, aside=json), json=json)


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
    preflight: Preflight,
    yes: Yes = False,
    following: Following,
    key: Key = "",
) -> None:
    """
    Go on with a stopped or failed run, from its last checkpoint, in its own directory.

    It takes as many nodes as before, or --nodes, growing the group after asking. On another number of ranks a
    recipe keeps its images a step, dealt out anew.

    Example: fab resume 20261120-121314-digits-ab12
    """
    progress = progress_printer(json=following.json)
    named(run)
    session = Session(PROJECT, set_, key=key)
    wanted = parse_nodes_argument(nodes) if nodes else 0
    secrets = read_secrets(secret, os.environ)
    check_maximum(wanted, session.inventory, session.config.max_workers)
    session.prices.begin(session.instance_types)
    bounded, roots = ask_ahead(session, PROJECT)
    with session.connect() as master:
        supervisor = session.supervisor(master)
        if not queue and (live := supervisor.live()):
            raise LiveRunError(live)
        record = supervisor.show(run)
        run_id, count = str(record["run_id"]), wanted or len(record["state"]["hosts"])
        if not record.get("spec"):
            raise DeepcdkError(f"run {run_id} has no spec any more, and cannot go on", where=record["directory"])
        if record["state"]["state"] == "succeeded":
            raise DeepcdkError(f"run {run_id} has succeeded; there is nothing left to go on with")
        if record["state"]["state"] in LIVE_STATES or record["state"]["state"] == QUEUED:
            raise LiveRunError(run_id, queued=record["state"]["state"] == QUEUED)
        check_maximum(count, session.inventory, session.config.max_workers)
        ready = ensure_nodes(session, master, count, yes=yes, report=progress)
        check_secrets(run_id, record["spec"].get("secrets") or [], secrets)
        caution(bounded.result(), progress)
        before = RunSpec.from_json(json_format.dumps(record["spec"]))
        hosts, agent = choose_hosts(ready, count), session.agent_tree.name
        again = resumed_spec(before, ready, hosts, agent=agent, other_ranks=wanted > 0)
        spec = dataclasses.replace(again, preflight=preflight.mode)
        submission = Submission(spec=spec, origin=provenance.of(session, spec, roots.result()))
        with interruptible(may_have_begun(run_id), progress):
            answer = supervisor.resume(submission, secrets, queue=queue)
        say_turn(run_id, answer["position"], progress)
        since = resume_point(spec, answer["checkpoints"])
        progress(f"run {run_id} goes on {since}: {spec.placed}")
        if following.watched:
            finish(
                session, run_id, lambda: watch(session, supervisor, run_id, aside=following.json), json=following.json
            )
        else:
            leave(run_id, answer["position"], json=following.json)


def say_turn(run_id: str, position: int | None, progress: Callable[[str], None]) -> None:
    """Say where a run stands in the queue, if it does."""
    if position:
        progress(f"run {run_id} waits at place {position} in the queue; `fab stop --run {run_id}` takes it out")


def may_have_begun(run_id: str) -> str:
    """Say what has become of a run whose start was interrupted."""
    return f"\nrun {run_id} may have begun; `fab attach --run {run_id}` shows it, `fab stop --run {run_id}` ends it"


def leave(run_id: str, position: int | None, *, json: bool) -> None:
    """Say of a run that nobody watches how it can be watched."""
    progress_printer(json=json)(f"it goes on by itself; watch it with `fab attach --run {run_id}`")
    if json:
        print_result(document(run_id, position=position), json=True)


def finish(session: Session, run_id: str, watched: Callable[[], Picture], *, json: bool) -> None:
    """Watch a run, and end as it ended; Ctrl-C leaves it going."""
    try:
        picture = watched()
    except KeyboardInterrupt:
        remedy = f"  `fab attach --run {run_id}` watches it again, `fab stop --run {run_id}` ends it"
        said = f"\nno longer watching; run {run_id} goes on\n{remedy}"
        raise Exit(fitted(said, sys.stderr), code=INTERRUPTED_STATUS) from None
    usd_per_hour = session.usd_per_hour(wait_s=0.0)
    text, failed = describe_end(picture, usd_per_hour)
    if json:
        print_result(document(run_id, picture, usd_per_hour), json=True)
    if failed:
        raise Exit(fitted(text, sys.stderr), code=1)
    progress_printer(json=json)(text)


def ask_ahead(session: Session, source: Path) -> tuple[Future[tuple[guard.Bound, ...] | str], Future[provenance.Roots]]:
    """Begin to ask for the cluster's bounds, and for what is known of a run's origin; needs the stack."""
    return (
        in_background(lambda: guard.read_or_explain(session.aws, session.stack.name)),
        in_background(lambda: provenance.roots(session, source)),
    )


def caution(found: tuple[guard.Bound, ...] | str, progress: Callable[[str], None]) -> None:
    """Say how long the cluster's bounds let a run be."""
    for line in guard.cautions(found, datetime.datetime.now(datetime.UTC)):
        progress(line)
