"""The specs that this master has accepted, in its database: every rank can rewrite the spec.json of its run.

A spec holds what is run on the master: the commands of `--notify`, and a launcher. The master reads it here only; the
file is for nodes and people.
"""

from __future__ import annotations

from agent.errors import SpecError
from agent.runs import database
from agent.spec.run import RunSpec


def accept(spec: RunSpec) -> str:
    """Store a spec as the one to carry out; return the text that the run's spec.json is to have."""
    text = spec.to_json()
    with database.transaction() as changing:
        changing.execute("INSERT OR REPLACE INTO specs VALUES (?, ?)", (spec.run_id, text))
    return text


def read(run_id: str) -> RunSpec:
    """Read the spec of a run, to carry it out. Raises SpecError if this master has accepted none."""
    if (text := text_of(run_id)) is None:
        raise SpecError(
            f"this master has not accepted the spec of run {run_id}, another master did; `fab resume {run_id}` submits "
            "it again"
        )
    return RunSpec.from_json(text)


def text_of(run_id: str) -> str | None:
    """Return the spec of a run as JSON; None if this master has accepted none."""
    found = database.rows("SELECT spec FROM specs WHERE run_id = ?", run_id)
    return str(found[0][0]) if found else None


def forget(run_id: str) -> None:
    """Forget a run that is removed."""
    with database.transaction() as changing:
        changing.execute("DELETE FROM specs WHERE run_id = ?", (run_id,))
