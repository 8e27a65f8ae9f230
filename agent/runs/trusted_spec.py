"""The specs that this master has accepted, in its database. Every rank can change the spec.json of its run.

A spec contains commands that the master runs: those of `--notify`, and a custom launcher. To run them, the master reads
the spec only from its database. spec.json is for the nodes and for users.
"""

from __future__ import annotations

from agent.errors import SpecError
from agent.runs import database
from agent.spec.run import RunSpec


def accept(spec: RunSpec) -> str:
    """Store a run's spec in the database, from which the master reads it. Return it as JSON, the text for spec.json."""
    text = spec.to_json()
    with database.transaction() as changing:
        changing.execute("INSERT OR REPLACE INTO specs VALUES (?, ?)", (spec.run_id, text))
    return text


def read(run_id: str) -> RunSpec:
    """Return the accepted spec of a run. Raises SpecError if this master has not accepted one."""
    if (text := text_of(run_id)) is None:
        raise SpecError(
            f"another master accepted run {run_id}, so this master has no spec for it; to submit it again: "
            f"`fab resume {run_id}`"
        )
    return RunSpec.from_json(text)


def text_of(run_id: str) -> str | None:
    """Return the accepted spec of a run as JSON; None if this master has not accepted one."""
    found = database.rows("SELECT spec FROM specs WHERE run_id = ?", run_id)
    return str(found[0][0]) if found else None


def forget(run_id: str) -> None:
    """Delete the accepted spec of a removed run. Does nothing if there is none."""
    with database.transaction() as changing:
        changing.execute("DELETE FROM specs WHERE run_id = ?", (run_id,))
