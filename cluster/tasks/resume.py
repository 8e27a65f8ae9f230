"""The task that resumes a run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Annotated, Any

from agent.spec.nodes import choose_hosts
from agent.spec.resumed_spec import resume_point, resumed_spec
from agent.spec.run import RunSpec
from agent.spec.run_states import LIVE_STATES, QUEUED
from cluster.aws.notify_flag import check_notify, resolve_topics
from cluster.cli import CODE, PROJECT
from cluster.cli.flags import parse_run_id, whole
from cluster.cli.task import Key, Notify, Queue, Set, Yes, task
from cluster.errors import DeepcdkError, LiveRunError, UsageError
from cluster.nodes.worker_group import check_maximum
from cluster.runs.environment_variables import check_secrets, read_secrets
from cluster.runs.launch import Following, Launch
from cluster.runs.limit_checks import check_left, stop_policy
from cluster.runs.run_options import STALL_MINUTES, LimitOptions, PreflightOptions
from cluster.runs.run_spec import stored_spec
from cluster.session import Session


@task(word="--run")
def resume(
    *,
    set_: Set = (),
    secret: Annotated[
        tuple[str, ...],
        "a secret of the run, as NAME or NAME=@FILE. Give each again, because secrets are not kept after a run",
    ] = (),
    run: Annotated[str, "id of the run; default: the newest", parse_run_id] = "",
    nodes: Annotated[int, "number of workers; default: as many as before", whole(lowest=1)] = 0,
    queue: Queue = False,
    bounds: LimitOptions,
    stall_minutes: Annotated[
        int | None,
        "kill a rank that made no progress for this many minutes; 0: never; default: as before",
        STALL_MINUTES,
    ] = None,
    notify: Notify = (),
    preflight: PreflightOptions,
    yes: Yes = False,
    following: Following,
    key: Key = "",
    keep_workers: Annotated[
        bool, "do not terminate the workers after the run, even if its --then-stop or then_stop of cdk.json says so"
    ] = False,
) -> None:
    """
    Continue a stopped or failed run from its last checkpoint, in the same directory.

    The run gets as many nodes as before, or --nodes. You are asked before nodes are added. With another number of
    ranks, a recipe keeps the images per step and divides them among the ranks. --max-cost and --max-hours count
    earlier attempts. These limits, --then-stop and --notify stay as they were, unless given. To drop them: --max-cost
    none, --max-hours none, --keep-workers, --notify none.

    Example: fab resume 20261120-121314-digits-ab12
    """
    session, secrets = Session(PROJECT, set_, key=key), read_secrets(secret, os.environ)
    check_notify(notify)
    request = ResumeRequest(
        nodes=nodes,
        bounds=bounds,
        keep_workers=keep_workers,
        stall_minutes=stall_minutes,
        notify=resolve_topics(notify, session.stack) if notify else None,
        preflight=preflight,
        secrets=secrets,
    )
    check_maximum(nodes, session.load_inventory(), session.config.max_workers)
    launch = Launch(session, CODE, task="fab resume", queue=queue, yes=yes, following=following)
    with session.connect() as master:
        supervisor = session.supervisor(master)
        occupied, record = supervisor.occupancy(), supervisor.show(run)
        before = request.changed(record, session)
        count = nodes or len(record["state"]["hosts"])
        check_maximum(count, session.load_inventory(), session.config.max_workers)
        launch.size_for(count, occupied)
        launch.check_prices(before.bounds)
        check_left(before, record.get("spent"))
        found = launch.free_nodes(master, count, occupied)
        hosts, agent = choose_hosts(found, count), session.agent_tree.name
        spec = launch.configured(resumed_spec(before, found, hosts, agent=agent, other_ranks=nodes > 0))
        begun = launch.submit(spec, lambda submission: supervisor.resume(submission, secrets, queue=queue))
        text = f"run {spec.run_id} continues {resume_point(spec, begun.checkpoints)}: {begun.placed(spec)}"
        launch.follow(supervisor, spec.run_id, begun.position, text, log=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeRequest:
    """The changes to make when a run is resumed: the flags of `fab resume`."""

    nodes: int
    """0: as many as before."""
    bounds: LimitOptions
    keep_workers: bool
    stall_minutes: int | None
    notify: tuple[str, ...] | None
    """None: as before."""
    preflight: PreflightOptions
    secrets: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.keep_workers and self.bounds.then_stop:
            raise UsageError("--keep-workers", None, "contradicts --then-stop; give only one of them")

    def changed(self, record: Mapping[str, Any], session: Session) -> RunSpec:
        """Return the run's spec from its record, with these changes except `nodes`: the hosts stay those of the record.

        Of `secrets`, only the names are checked. Raises LiveRunError for a live run, and another DeepcdkError if the
        run cannot be resumed.
        """
        run_id, state = str(record["run_id"]), record["state"]["state"]
        if state == "succeeded":
            raise DeepcdkError(
                f"run {run_id} has succeeded, so there is nothing to resume",
                remedy=f"fetch its results with `fab fetch --run {run_id}`, or start a new run",
            )
        if state in LIVE_STATES:
            raise LiveRunError(run_id)
        if state == QUEUED:
            remedy = f"watch it with `fab attach --run {run_id}`, or remove it with `fab stop --run {run_id}`"
            raise DeepcdkError(f"run {run_id} is already in the queue", remedy=remedy)
        before = stored_spec(record, remedy="start a new run")
        check_secrets(run_id, before.secrets, self.secrets)
        then_stop = self.bounds.then_stop or bool(before.stop_policy) or session.config.then_stop
        then_stop = then_stop and not self.keep_workers
        return dataclasses.replace(
            before,
            bounds=self.bounds.over(before.bounds),
            stop_policy=stop_policy(session.stack, wanted=then_stop),
            notify=before.notify if self.notify is None else self.notify,
            stall_after_s=before.stall_after_s if self.stall_minutes is None else 60 * self.stall_minutes,
            preflight=self.preflight.mode,
            allow_degraded=self.preflight.allow_degraded,
        )
