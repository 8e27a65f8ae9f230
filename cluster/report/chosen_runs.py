"""Find the runs for a report by id, by the id of another cluster's run, or by directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.spec.run_states import FINAL_STATES
from cluster.cli.flags import parse_run_id
from cluster.errors import DeepcdkError, UsageError
from cluster.report.run_files import RUNS as RUNS
from cluster.report.run_files import RunFiles, read_run
from cluster.runs.archived_runs import fetch_run
from cluster.terminal.output import print_note

if TYPE_CHECKING:
    from cluster.session import Session

FORMS: Final = "a run's id, CLUSTER:ID for a run of another cluster, or the directory of a fetched run, as runs/ID"


def locate(word: str, session_of: Callable[[str], Session], *, archive_only: bool = False, flag: str = "--run") -> Path:
    """Return the directory of a run. The run is fetched to RUNS, unless it is there already and has succeeded.

    `word` is one of FORMS, or "" for the live or newest run. A directory is returned as it is. `session_of` opens a
    session with a cluster by its name, "" for the cluster of cdk.json. With `archive_only`, the run is fetched from the
    bucket, also if it has succeeded. If fetching fails for a run that has ended and is in RUNS, a note says that this
    copy is used. Raises UsageError, which names `flag`, for an invalid word, and DeepcdkError if the run cannot be
    fetched.
    """
    if "/" in word or word in (".", ".."):
        if not Path(word).is_dir():
            raise UsageError(flag, word, f"is not a directory; must be {FORMS}")
        return Path(word)
    cluster, _, run_id = word.rpartition(":")
    kept = RUNS / (parse_run_id(flag, run_id) if run_id else "")
    state = _state_of(kept) if run_id else ""
    if state == "succeeded" and not archive_only:
        return kept
    try:
        return fetch_run(session_of(cluster), run_id, RUNS, archive_only=archive_only).directory
    except DeepcdkError as error:
        if state not in FINAL_STATES:
            raise
        print_note(f"{error.what}; using the copy in {kept}")
        return kept


def _state_of(directory: Path) -> str:
    """Return the state of a fetched run, or "" if there is no valid record."""
    try:
        return str(read_run(directory).record["state"]["state"])
    except DeepcdkError:
        return ""


def read_chosen(
    word: str, session_of: Callable[[str], Session], *, archive_only: bool = False
) -> tuple[Path, RunFiles]:
    """Return a run's directory and files. Fetches the run if necessary. Parameters and errors: as in `locate`."""
    directory = locate(word, session_of, archive_only=archive_only)
    return directory, read_run(directory)


def comparison_name(run_ids: Sequence[str], most: int = 6) -> str:
    """Return the name of a comparison's files without a suffix, such as `comparison-ab12-cd34`.

    It has the last parts of the runs' ids, at most `most` of them, and the number of the other runs.
    """
    tokens = [run_id.rpartition("-")[2] for run_id in run_ids]
    more = [f"and-{len(tokens) - most}-more"] if len(tokens) > most else []
    return "-".join(["comparison", *tokens[:most], *more])
