"""The tasks for launched runs: list, watch, read, stop, fetch and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from agent.spec.run_states import LIVE_STATES, MAX_STOP_GRACE_S, QUEUED, STOP_GRACE_S
from cluster.cli import PROJECT
from cluster.cli.flags import parse_run_id, whole
from cluster.cli.task import FromBucket, Json, Key, RunId, Set, Yes, task
from cluster.errors import DeepcdkError, LiveRunError, UsageError
from cluster.nodes.worker_group import describe_alarms
from cluster.planner.expected_and_actual import outcomes
from cluster.runs import run_owner
from cluster.runs.archived_runs import archived, fetch_run
from cluster.runs.follow import print_log
from cluster.runs.launch import watch_to_end
from cluster.runs.run_tables import cost_per_person, cost_table, record_table, result_table, runs_table
from cluster.runs.supervisor_client import Supervisor
from cluster.session import Session
from cluster.terminal.confirmation import confirm
from cluster.terminal.output import print_line, print_note, print_result
from cluster.terminal.status_line import interruptible
from cluster.terminal.tables import print_table


@task()
def runs(
    set_: Set = (),
    sweep: Annotated[str, "only the runs of this sweep"] = "",
    mine: Annotated[bool, "only the runs that you started"] = False,
    cost: Annotated[bool, "the time and cost of the runs of each person, instead of the runs"] = False,
    from_bucket: FromBucket = False,
    json: Json = False,
    key: Key = "",
) -> None:
    """
    List all runs, newest first, from the shared file system, or from the bucket if the cluster is gone.

    Example: fab runs --json
    """
    session = Session(PROJECT, set_, key=key)
    if archive := archived(session, archive_only=from_bucket):
        found = archive.runs()
    else:
        with session.connect() as master:
            found = session.supervisor(master).runs()
    if sweep:
        found = of_sweep(found, sweep)
    if mine:
        found = [run for run in found if run.get("started_by") and not run_owner.is_others(run["started_by"])]
    if cost:
        costs = cost_per_person(found)
        print_result(costs, json=True) if json else print_table(cost_table(costs))
    elif json:
        print_result(found, json=True)
    else:
        print_table(runs_table(found))


def of_sweep(runs: Sequence[dict[str, Any]], sweep: str) -> list[dict[str, Any]]:
    """Return the runs that belong to a sweep, given by its name. Raises DeepcdkError if there are none."""
    if found := [run for run in runs if (run.get("trial") or {}).get("sweep") == sweep]:
        return found
    known = dict.fromkeys(run["trial"]["sweep"] for run in runs if run.get("trial"))
    listed = ", ".join([*known][-5:])
    remedy = f"choose one of the last sweeps: {listed}" if listed else "start a sweep with `fab sweep`"
    raise DeepcdkError(f"no run belongs to sweep {sweep}", remedy=remedy)


@task(word="--run")
def logs(
    set_: Set = (),
    follow: Annotated[bool, "print new lines until the run ends"] = False,
    run: RunId = "",
    rank: Annotated[int | None, "print only this rank's lines"] = None,
    key: Key = "",
) -> None:
    """
    Print the log of a run: the output of the supervisor, the launcher and each rank.

    Example: fab logs -f --rank 0
    """
    session = Session(PROJECT, set_, key=key)
    with session.connect() as master:
        print_log(session.supervisor(master), run, connect=session.connect, following=follow, rank=rank)


@task(word="--run")
def stop(
    set_: Set = (),
    run: RunId = "",
    grace: Annotated[
        int,
        "seconds that the run has to write a checkpoint before it is killed",
        whole(lowest=0, highest=int(MAX_STOP_GRACE_S)),
    ] = int(STOP_GRACE_S),
    force: Annotated[bool, "kill the run without a checkpoint"] = False,
    sweep: Annotated[str, "stop all runs of this sweep, and take those that wait out of the queue"] = "",
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Stop a run with a checkpoint, and kill it after the grace period. A queued run is removed from the queue.

    The task asks before it stops a run that somebody else started.

    Example: fab stop --grace 60
    """
    session = Session(PROJECT, set_, key=key)
    with session.connect() as master:
        supervisor = session.supervisor(master)
        if sweep:
            if run:
                raise UsageError("--sweep", sweep, f"is given with run {run}; give either a sweep or a run")
            stop_sweep(supervisor, sweep, 0 if force else grace, yes=yes, json=json)
            return
        found = supervisor.status(run)
        if found["state"] in (*LIVE_STATES, QUEUED) and run_owner.is_others(by := found.get("started_by")):
            confirm(f"stop run {found['run_id']}, which {run_owner.describe(by, identity=True)} started.", yes=yes)
        run = str(found["run_id"])
        with interruptible(
            "\nthe request to stop the run was sent; `fab runs` shows when the run has stopped", print_note
        ):
            state = supervisor.stop(run, 0 if force else grace)
    ended_before = "" if state["was_live"] else ", it had already ended"
    print_result(state, f"run {state['run_id']}: {state['state']}{ended_before}", json=json)


def stop_sweep(supervisor: Supervisor, sweep: str, grace_s: float, *, yes: bool, json: bool) -> None:
    """Stop the runs of a sweep that wait or are live, one after the other, and print the result.

    Asks if somebody else has started any of them. `grace_s` is each run's time from SIGTERM to SIGKILL, s. The last run
    in the queue is stopped first, so that none starts. Raises DeepcdkError if the sweep does not exist, or unless the
    answer is yes.
    """
    found = [run for run in of_sweep(supervisor.runs(), sweep) if run["state"] in (*LIVE_STATES, QUEUED)]
    starters = {str(run["run_id"]): run.get("started_by") or {} for run in found}
    if found and (others := run_owner.describe_others(starters, starters)):
        confirm(f"stop {len(found)} runs of sweep {sweep}.{others}", yes=yes)
    waiting = sorted((run for run in found if run["state"] == QUEUED), key=lambda run: -(run.get("position") or 0))
    states = [supervisor.stop(str(run["run_id"]), grace_s) for run in waiting]
    states += [supervisor.stop(str(run["run_id"]), grace_s) for run in found if run["state"] != QUEUED]
    text = f"sweep {sweep}: {len(states)} runs stopped; `fab sweep --resume {sweep}` runs what is missing"
    print_result(
        {"sweep": sweep, "stopped": states}, text if states else f"sweep {sweep} has no live or queued run", json=json
    )


@task(word="--run")
def fetch(
    set_: Set = (),
    run: RunId = "",
    checkpoints: Annotated[bool, "also fetch the checkpoints from the cluster; the bucket has none"] = False,
    from_bucket: FromBucket = False,
    into: Annotated[str, "directory on the laptop"] = "runs",
    json: Json = False,
    key: Key = "",
) -> None:
    """
    Fetch the results of a run to ./runs/ID: result, metrics, log, TensorBoard events.

    Files that programs on the laptop would obey, such as .git or CLAUDE.md, get a name that begins with `fetched-`.

    Example: fab fetch --checkpoints
    """
    session = Session(PROJECT, set_, key=key)
    fetched = fetch_run(session, run, Path(into), archive_only=from_bucket, checkpoints=checkpoints)
    if json:
        paths = {"run_id": fetched.directory.name, "directory": str(fetched.directory)}
        print_result({**paths, "files": fetched.files, "bytes": fetched.size_bytes}, json=True, indent=None)
        return
    print_table(result_table(fetched.directory))
    print_line(f"{fetched.files} files, {fetched.size_bytes:,} bytes: {fetched.directory}")


@task(word="--run")
def show(set_: Set = (), run: RunId = "", from_bucket: FromBucket = False, json: Json = False, key: Key = "") -> None:
    """
    Show the record of a run: command, nodes, state and result.

    Example: fab show 20261120-121314-digits-ab12 --json
    """
    session = Session(PROJECT, set_, key=key)
    if archive := archived(session, archive_only=from_bucket):
        record = archive.record(run)
    else:
        with session.connect() as master:
            record = session.supervisor(master).show(run)
        record["alarms"] = describe_alarms(session.aws, session.stack, record["state"])
    if json:
        print_result({**record, "outcome": [each.document() for each in outcomes(record)]}, json=True)
    else:
        print_table(record_table(record))


@task(word="--run")
def rm(
    set_: Set = (),
    run: Annotated[str, "full id of the run", parse_run_id] = "",
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Remove an ended run, with its checkpoints, from the shared file system.

    Results that `fab fetch` copied to the laptop are kept.

    Example: fab rm 20261120-121314-digits-ab12
    """
    session = Session(PROJECT, set_, key=key)
    if not run:
        raise UsageError("--run", None, "must be the id of the run to remove; `fab runs` lists the runs")
    with session.connect() as master:
        supervisor = session.supervisor(master)
        record = supervisor.show(run)
        if record["state"]["state"] in LIVE_STATES:
            raise LiveRunError(run)
        if record["state"]["state"] == QUEUED:
            raise DeepcdkError(f"run {run} is queued", remedy=f"remove it from the queue with `fab stop --run {run}`")
        by = run_owner.describe_others({run: record["state"].get("started_by") or {}}, [run])
        size = f"{record['files']} files, {record['bytes']:,} bytes"
        confirm(
            f"remove run {run} ({record['state']['state']}): {size}, {len(record['checkpoints'])} checkpoints.{by}",
            yes=yes,
        )
        removed = supervisor.remove(run)
    print_result(removed, f"run {run} removed: {size}", json=json, indent=None)


@task(word="--run")
def attach(set_: Set = (), run: RunId = "", json: Json = False, key: Key = "") -> None:
    """
    Watch a run from its first output until it ends.

    Example: fab attach 20261120-121314-digits-ab12
    """
    session = Session(PROJECT, set_, key=key)
    session.prices.begin(session.instance_types)
    with session.connect() as master:
        supervisor = session.supervisor(master)
        record = supervisor.show(run)
        run_id, log = str(record["run_id"]), bool((record.get("spec") or {}).get("program"))
        watch_to_end(session, supervisor, run_id, log=log, json=json)
