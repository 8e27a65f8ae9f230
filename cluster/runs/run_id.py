"""The id of a run, as a user gives it."""

from __future__ import annotations

from agent.spec.states import RUN_ID_RULE, is_run_id
from cluster.errors import UsageError


def check_run_id(run_id: str) -> None:
    """Raise UsageError for what cannot be a run's id, such as a flag or a path; "" is the live or newest run."""
    if run_id and not is_run_id(run_id):
        raise UsageError("--run", run_id, f"must be a run's id, {RUN_ID_RULE}; `fab runs` lists them")


def run_id_arguments(run_id: str) -> list[str]:
    """Return the argument that names a run in a command of the supervisor, none for "". Raises UsageError."""
    check_run_id(run_id)
    return [run_id] if run_id else []
