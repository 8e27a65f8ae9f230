"""The record of a run: one JSON document with everything that is known about it, from its origin to its result."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final

from agent.files.safe_read import count_files, is_listed, names_in
from agent.runs import run_cost, run_summary, trusted_spec
from agent.runs.restart_costs import restart_costs
from agent.runs.run_cost import cost, on_spot, unless_damaged
from agent.runs.run_directory import COURSE_FILE, ORIGIN_FILE, RunDirectory
from agent.runs.stored_state import State
from agent.spec import untrusted_json
from agent.spec.run_states import RECORD_FILE
from agent.spec.submission import Origin

DIFF_FILE: Final = "source.diff"


def write_origin(directory: RunDirectory, origin: Origin) -> None:
    """Write origin.json, which states where a run comes from. An earlier one is kept as origin-N.json.

    The file exists at every moment. The differences from the last commit (`diff`) are written to source.diff. Raises
    OSError.
    """
    path = directory.path / ORIGIN_FILE
    if path.exists():
        kept = list(directory.path.glob("origin-*.json"))
        # An interrupted call may have kept it already. A symbolic link in its place is kept as a link and not followed.
        if not any(os.path.samestat(each.lstat(), path.lstat()) for each in kept):
            os.link(path, directory.path / f"origin-{len(kept) + 1}.json", follow_symlinks=False)
    document = dataclasses.asdict(origin)
    diff = document.pop("diff")
    document["diff_bytes"] = len(diff.encode("utf-8", errors="surrogateescape"))
    document["diff_sha256"] = hashlib.sha256(diff.encode("utf-8", errors="surrogateescape")).hexdigest() if diff else ""
    if diff:
        directory.write(directory.path / DIFF_FILE, diff.encode("utf-8", errors="surrogateescape"))
    directory.write(path, json.dumps(document, indent=1))


def write_course(directory: RunDirectory, course: Mapping[str, Any]) -> None:
    """Write a run's timeline (course.json). Raises OSError.

    It contains when the run reached each step, its restarts, and the address of its copy.
    """
    directory.write(directory.path / COURSE_FILE, json.dumps(course, indent=1))


def reset_course(directory: RunDirectory) -> None:
    """Clear the steps and restarts in the timeline of a run that a user resumes.

    The address of the run's copy is kept. Nothing is written for a run without a timeline.
    """
    if course := directory.course():
        write_course(directory, {"archive": course.get("archive"), "times": {}})


def record(directory: RunDirectory, state: State | None = None) -> dict[str, Any]:
    """Return the record of a run as JSON values. `state` is a state that is not written yet; default: the present one.

    `launch` is null until the run was launched, and `result` until it succeeded. `restart_costs` contains the cost of
    each restart, in the order of the timeline. `usd`, and `spot` (see `on_spot`), are the cost from the last start
    until the last update. A field is null if its file is missing or damaged.
    """
    files, size_bytes = count_files(directory.path)
    state = state or directory.effective_state()
    accepted = trusted_spec.text_of(directory.run_id)  # `fab resume` submits the spec that this record shows.
    spec = directory.document("spec.json") if accepted is None else untrusted_json.parse(accepted)
    origin, course = directory.document(ORIGIN_FILE), directory.document(COURSE_FILE)
    return {
        "run_id": directory.run_id,
        "directory": str(directory.path),
        "state": run_summary.summary(state, directory),
        "spec": spec,
        "origin": origin,
        "launch": directory.document(directory.launch_file.name),
        "course": course,
        "restart_costs": _restart_costs(directory, course, origin, spec),
        "preflight": directory.document(directory.preflight.name),
        "result": directory.document("result.json"),
        "spent": spent.to_document() if (spent := run_cost.read_spent(directory)) else None,
        "usd": unless_damaged(functools.partial(cost, origin, spec, state.updated - state.started)),
        "spot": unless_damaged(functools.partial(on_spot, origin, spec, state.updated - state.started)),
        "checkpoints": checkpoints(directory),
        "attempts": directory.attempt,
        "files": files,
        "bytes": size_bytes,
    }


def write_record(directory: RunDirectory, state: State) -> None:
    """Write the record with the state `state` into the run's directory. Raises OSError.

    The values of variables and the commands for notifications are left out, because they may be secret. For example,
    the address of a webhook is a credential.
    """
    document = record(directory, state)
    if document["spec"]:
        document["spec"]["environment"] = [[name, None] for name, _ in document["spec"].get("environment", ())]
        document["spec"]["notify"] = [None for _ in document["spec"].get("notify", ())]
    if document["launch"]:
        document["launch"]["rank_environment"] = dict.fromkeys(document["launch"].get("rank_environment", ()))
    directory.write(directory.path / RECORD_FILE, json.dumps(document, indent=1))


def _restart_costs(directory: RunDirectory, course: Any, origin: Any, spec: Any) -> list[dict[str, Any]]:
    """Return the fields of `RestartCost` and `usd` for each restart in the timeline `course`; [] without restarts.

    `usd` is None if a price or the duration is unknown.
    """
    restarts = course.get("restarts") if course else None
    if not isinstance(restarts, list) or not restarts:
        return []
    made = [each if isinstance(each, dict) else {} for each in restarts]
    return [
        {
            **dataclasses.asdict(each),
            "usd": None
            if each.seconds is None
            else unless_damaged(functools.partial(cost, origin, spec, each.seconds)),
        }
        for each in restart_costs(run_summary.metrics(directory), made)
    ]


def checkpoints(directory: RunDirectory) -> list[str]:
    """List the names of a run's checkpoints, oldest first; [] if there are none."""
    folder = directory.path / "checkpoints"
    return sorted(name for name in names_in(folder) if name.startswith("step-")) if is_listed(folder) else []
