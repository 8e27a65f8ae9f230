"""The id of a run, as a user gives it."""

from __future__ import annotations

from agent.spec.states import RUN_ID_RULE, is_run_id
from cluster.errors import UsageError


def named(run_id: str) -> list[str]:
    """Return the word that names a run, none for "". Raises UsageError for what could be no run's: a flag, a path."""
    if run_id and not is_run_id(run_id):
        raise UsageError("--run", run_id, f"must be a run's id, {RUN_ID_RULE}; `fab runs` lists them")
    return [run_id] if run_id else []
