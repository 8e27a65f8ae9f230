"""The runs that a report is about, as they are named: an id, the id of another cluster's run, or a directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.spec.states import FINAL_STATES
from cluster.errors import DeepcdkError, UsageError
from cluster.report.run_files import RUNS as RUNS
from cluster.report.run_files import RunFiles, read_run
from cluster.runs.retrieval import fetch_run
from cluster.runs.run_id import check_run_id
from cluster.terminal.output import print_note

if TYPE_CHECKING:
    from cluster.session import Session

FORMS: Final = "a run's id, CLUSTER:ID for a run of another cluster, or the directory of a fetched run, as runs/ID"


def locate(word: str, session_of: Callable[[str], Session], *, archive_only: bool = False) -> Path:
    """Return the directory of a run, fetched where that is needed. Raises DeepcdkError.

    `word`: one of FORMS, "" for the live or newest run. `session_of`: a session with the cluster of a name, "" for
    that of cdk.json. A run that has succeeded changes no more, so its files are taken as they were fetched; those of
    another one only where it is found nowhere else, and the user is told.
    """
    if "/" in word or word in (".", ".."):
        if not Path(word).is_dir():
            raise UsageError("--run", word, f"is not a directory; must be {FORMS}")
        return Path(word)
    cluster, _, run_id = word.rpartition(":")
    check_run_id(run_id)
    kept = RUNS / run_id if run_id else None
    state = state_of(kept) if kept else ""
    if kept and state == "succeeded" and not archive_only:
        return kept
    try:
        return fetch_run(session_of(cluster), run_id, RUNS, archive_only=archive_only).directory
    except DeepcdkError as error:
        if kept is None or state not in FINAL_STATES:
            raise
        print_note(f"{error.what}; what follows is from {kept}, as it was fetched")
        return kept


def state_of(directory: Path) -> str:
    """Return the state of a fetched run, "" where there is no whole record of one."""
    try:
        return str(read_run(directory).record["state"]["state"])
    except DeepcdkError:
        return ""


def read_chosen(
    word: str, session_of: Callable[[str], Session], *, archive_only: bool = False
) -> tuple[Path, RunFiles]:
    """Return the directory and the files of a run. Raises DeepcdkError."""
    directory = locate(word, session_of, archive_only=archive_only)
    return directory, read_run(directory)


def comparison_name(run_ids: Sequence[str], most: int = 6) -> str:
    """Return the name of a comparison's files: by the last part of each run's id, and how many more there are."""
    tokens = [run_id.rpartition("-")[2] for run_id in run_ids]
    more = [f"and-{len(tokens) - most}-more"] if len(tokens) > most else []
    return "-".join(["comparison", *tokens[:most], *more])
