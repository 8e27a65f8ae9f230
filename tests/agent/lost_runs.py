"""A live run that has lost its supervisor, as its directory and its claim show it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agent.runs import database, trusted_spec
from agent.runs.node_claims import Claim, Runs
from agent.runs.run_directory import RunDirectory
from tests.factories import abandon, make_nodes, make_spec, make_state

BEGUN = {"archive": "s3://bucket/runs/one", "times": {"started": 1.0}}


def restart(fault: str) -> dict[str, Any]:
    """Return a restart as recorded in a run's history."""
    return {"time": 5.0, "for": fault, "waited_s": 1.0, "hosts": ["deeplearning-worker1"]}


def lose(runs: Runs, *, faults: Sequence[str] = (), **changes: Any) -> RunDirectory:
    """Make run `one`, live on two workers. Its supervisor is lost after restarts for these `faults`."""
    directory = runs["one"]
    directory.path.mkdir(parents=True, exist_ok=True)
    spec = make_spec(**{"run_id": "one", "hosts": make_nodes(2), "restarts": 3, **changes})
    directory.spec.write_text(trusted_spec.accept(spec))
    course = {**BEGUN, "restarts": [restart(fault) for fault in faults]}
    (directory.path / "course.json").write_text(json.dumps(course))
    directory.write_state(make_state())
    with database.transaction() as changing:
        changing.execute("DELETE FROM claims WHERE run_id = 'one'")
        Claim.on("one", spec.hosts).store(changing)
    abandon("one")
    return directory
