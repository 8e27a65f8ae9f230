"""The tasks that write a report of one run, or of several runs side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from cluster.cli import PROJECT
from cluster.cli.task import FromBucket, Json, Key, Set, task
from cluster.errors import UsageError
from cluster.session import Session
from cluster.terminal.output import print_line, print_result
from cluster.terminal.status_line import doing

Format = Annotated[str, "html, md, json, or some of them with commas between"]


def sessions(set_: tuple[str, ...], key: str) -> Callable[[str], Session]:
    """Return a function that opens a session with the named cluster, or with cdk.json's for "". Sessions are cached."""
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
        tuple[str, ...], "id or fetched directory of a run, CLUSTER:ID; default: the only live one, else the newest"
    ] = (),
    format: Format = "html",
    into: Annotated[str, "file, or directory with a / at its end; default: the run's directory in ./runs"] = "",
    from_bucket: FromBucket = False,
    json: Json = False,
    key: Key = "",
) -> None:
    """
    Write a run's report, one HTML file: figures, curves, timeline, confusion matrix, settings and versions.

    What the run has left is fetched to ./runs/ID first, unless it is there and the run has succeeded.

    Example: fab report 20261120-121314-digits-ab12 --format html,md
    """
    # Modules to draw and fill in pages take a second to load, so import them only when there is something to report.
    from cluster.report import chosen_runs, formats

    kinds = formats.parse_formats(format)
    formats.destinations(into, chosen_runs.RUNS / "report", kinds)  # rejects an invalid path before fetching
    session_of = sessions(set_, key)
    if len(run) > 1 and into and not into.endswith("/"):
        raise UsageError("--into", into, "must be a directory (with a / at its end) for more than one report")
    written = []
    for word in run or ("",):
        directory, files = chosen_runs.read_chosen(word, session_of, archive_only=from_bucket)
        run_id = files.record["run_id"]
        default = directory / "report" if not into else directory / f"report-{run_id}"
        paths = formats.destinations(into, default, kinds)
        with doing(f"drawing the report of {run_id}"):
            from cluster.report.run_report import report_of

            built = report_of(files)
            for kind, path in paths.items():
                formats.write(path, formats.rendered(built, kind))
        written.append({"run_id": run_id, "files": {kind: str(path) for kind, path in paths.items()}})
    if json:
        print_result({"reports": written}, json=True)
        return
    for each in written:
        print_line(f"report of {each['run_id']}: {', '.join(each['files'].values())}")


@task(word="--run")
def compare(
    set_: Set = (),
    run: Annotated[tuple[str, ...], "id or fetched directory of a run, CLUSTER:ID; two at least"] = (),
    format: Format = "html",
    into: Annotated[str, "file, or directory with a / at its end; default: ./runs"] = "",
    from_bucket: FromBucket = False,
    json: Json = False,
    key: Key = "",
) -> None:
    """
    Write runs side by side: figures, shared curves, and what differs in settings and versions.

    Runs of the same settings, with the same or another seed, are averaged, and their spread is shown.

    Example: fab compare 20261120-121314-digits-ab12 20261121-101112-digits-cd34
    """
    from cluster.report import chosen_runs, formats

    kinds, session_of = formats.parse_formats(format), sessions(set_, key)
    if len(run) < 2:
        raise UsageError("--run", " ".join(run), "must name two runs at least; `fab runs` lists them")
    formats.destinations(into, chosen_runs.RUNS / "comparison", kinds)  # rejects an invalid path before fetching
    found = [chosen_runs.read_chosen(word, session_of, archive_only=from_bucket)[1] for word in run]
    ids = [str(files.record["run_id"]) for files in found]
    if twice := next((run_id for run_id in ids if ids.count(run_id) > 1), ""):
        raise UsageError("--run", twice, "is named twice")
    paths = formats.destinations(into, chosen_runs.RUNS / chosen_runs.comparison_name(ids), kinds)
    with doing(f"comparing {len(ids)} runs"):
        from cluster.report.comparison import compare as compare_reports
        from cluster.report.run_report import report_of

        comparison = compare_reports([report_of(files) for files in found])
        for kind, path in paths.items():
            formats.write(path, formats.rendered(comparison, kind))
    files = {kind: str(path) for kind, path in paths.items()}
    print_result({"runs": ids, "files": files}, f"{len(ids)} runs compared: {', '.join(files.values())}", json=json)
