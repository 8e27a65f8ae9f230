"""The tasks that write a report of one run, or of several runs side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from cluster.cli import PROJECT
from cluster.cli.task import FromBucket, Json, Key, Set, task
from cluster.errors import UsageError
from cluster.runs.archived_runs import archived
from cluster.session import Session
from cluster.tasks.runs import of_sweep
from cluster.terminal.output import print_line, print_result
from cluster.terminal.status_line import doing
from cluster.terminal.tables import print_table

Format = Annotated[str, "html, md, json, or several of them, comma-separated"]


def sessions(set_: tuple[str, ...], key: str) -> Callable[[str], Session]:
    """Return a function that opens a session with the cluster of a name, or of cdk.json for "". Sessions are cached.

    The session of cdk.json is created immediately. Raises as `Session` does.
    """
    opened = {"": Session(PROJECT, set_, key=key)}

    def session_of(cluster: str) -> Session:
        if cluster not in opened:
            opened[cluster] = Session(PROJECT, (*set_, f"name={cluster}"), key=key)
        return opened[cluster]

    return session_of


@task(word="--run")
def report(
    set_: Set = (),
    run: Annotated[
        tuple[str, ...],
        "run: its id, CLUSTER:ID, or its fetched directory; default: the only live run, else the newest",
    ] = (),
    format: Format = "html",
    into: Annotated[str, "file, or directory with a trailing /; default: the run's directory in ./runs"] = "",
    from_bucket: FromBucket = False,
    json: Json = False,
    key: Key = "",
) -> None:
    """
    Write a report of a run as one HTML file: figures, curves, timeline, confusion matrix, settings and versions.

    The run's results are fetched to ./runs/ID first, unless the run has succeeded and its results are already there.

    Example: fab report 20261120-121314-digits-ab12 --format html,md
    """
    # Modules to draw and fill in pages take a second to load, so import them only when there is something to report.
    from cluster.report import chosen_runs, output_formats

    kinds = output_formats.parse_formats(format)
    output_formats.destinations(into, chosen_runs.RUNS / "report", kinds)  # rejects an invalid path before fetching
    session_of = sessions(set_, key)
    if len(run) > 1 and into and not into.endswith("/"):
        raise UsageError("--into", into, "must be a directory (with a trailing /) for several reports")
    written = []
    for word in run or ("",):
        directory, files = chosen_runs.read_chosen(word, session_of, archive_only=from_bucket)
        run_id = files.record["run_id"]
        default = directory / "report" if not into else directory / f"report-{run_id}"
        paths = output_formats.destinations(into, default, kinds)
        with doing(f"drawing the report of {run_id}"):
            from cluster.report.run_report import report_of

            built = report_of(files)
            for kind, path in paths.items():
                output_formats.write(path, output_formats.rendered(built, kind))
        written.append({"run_id": run_id, "files": {kind: str(path) for kind, path in paths.items()}})
    if json:
        print_result({"reports": written}, json=True)
        return
    for each in written:
        print_line(f"report of {each['run_id']}: {', '.join(each['files'].values())}")


@task(word="--run")
def compare(
    set_: Set = (),
    run: Annotated[
        tuple[str, ...],
        "name of a sweep; or at least two runs, each by its id, CLUSTER:ID, or its fetched directory",
    ] = (),
    format: Annotated[str, "html, md, json, or several of them, comma-separated; for a sweep also csv"] = "html",
    into: Annotated[str, "file, or directory with a trailing /; default: ./runs"] = "",
    from_bucket: FromBucket = False,
    json: Json = False,
    key: Key = "",
) -> None:
    """
    Write a comparison of runs: figures, curves, and differences in settings and versions.

    Runs that differ only in their seed, or not at all, are shown as their mean and spread. For a sweep, figures and
    plots are by parameter.

    Example: fab compare 20261120-121314-digits-ab12 20261121-101112-digits-cd34

    Example: fab compare 20261120-121314-sweep-digits-ab12 --format html,csv
    """
    from cluster.report import chosen_runs, output_formats

    session_of = sessions(set_, key)
    if len(run) == 1 and "/" not in run[0]:
        compare_sweep(session_of(""), run[0], format, into, archive_only=from_bucket, json=json)
        return
    kinds = output_formats.parse_formats(format)
    if len(run) < 2:
        raise UsageError("--run", " ".join(run), "must name a sweep, or at least two runs; `fab runs` lists them")
    output_formats.destinations(into, chosen_runs.RUNS / "comparison", kinds)  # rejects an invalid path before fetching
    found = [chosen_runs.read_chosen(word, session_of, archive_only=from_bucket)[1] for word in run]
    ids = [str(files.record["run_id"]) for files in found]
    if twice := next((run_id for run_id in ids if ids.count(run_id) > 1), ""):
        raise UsageError("--run", twice, "is given twice; give each run once")
    paths = output_formats.destinations(into, chosen_runs.RUNS / chosen_runs.comparison_name(ids), kinds)
    with doing(f"comparing {len(ids)} runs"):
        from cluster.report.comparison import compare as compare_reports
        from cluster.report.run_report import report_of

        comparison = compare_reports([report_of(files) for files in found])
        for kind, path in paths.items():
            output_formats.write(path, output_formats.rendered(comparison, kind))
    files = {kind: str(path) for kind, path in paths.items()}
    print_result({"runs": ids, "files": files}, f"{len(ids)} runs compared: {', '.join(files.values())}", json=json)


def compare_sweep(session: Session, name: str, format: str, into: str, *, archive_only: bool, json: bool) -> None:
    """Write the comparison of a sweep's runs by parameter, and print the combinations and the unfinished runs.

    `format` and `into` are the values of --format and --into. With `archive_only`, the runs are read from the bucket.
    With `json`, a JSON document is printed. Runs that have succeeded are fetched first. Raises DeepcdkError if no run
    belongs to the sweep.
    """
    from cluster.report import chosen_runs, output_formats
    from cluster.report.sweep import combinations_table, one_per_number, sweep_report, unfinished_table

    kinds = output_formats.parse_formats(format, output_formats.SWEEP_FORMATS)
    paths = output_formats.destinations(into, chosen_runs.RUNS / name, kinds)  # rejects an invalid path before fetching
    if archive := archived(session, archive_only=archive_only):
        states = one_per_number(of_sweep(archive.runs(), name))
    else:
        with session.connect() as master:
            states = one_per_number(of_sweep(session.supervisor(master).runs(), name))
    done = [str(state["run_id"]) for state in states if state["state"] == "succeeded"]
    found = [chosen_runs.read_chosen(run_id, lambda _: session, archive_only=archive_only)[1] for run_id in done]
    with doing(f"comparing {len(done)} runs"):
        from cluster.report.run_report import report_of

        report = sweep_report(name, states, [report_of(files) for files in found])
        for kind, path in paths.items():
            output_formats.write(path, output_formats.rendered(report, kind))
    files = {kind: str(path) for kind, path in paths.items()}
    if json:
        print_result({"sweep": name, "runs": done, "unfinished": len(report.unfinished), "files": files}, json=True)
        return
    for table in (combinations_table(report), unfinished_table(report)):
        if table.rows:
            print_table(table)
    print_line(f"sweep {name}: {', '.join(files.values())}")
