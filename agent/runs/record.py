"""The record of a run: one JSON document with everything that is known about it, from its origin to its result."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from agent.files.safe_read import count_files, is_listed, names_in
from agent.runs import follow, spending, trusted_spec
from agent.runs.restart_costs import restart_costs
from agent.runs.run_directory import COURSE_FILE, ORIGIN_FILE, RunDirectory
from agent.runs.state import State
from agent.spec import untrusted_json
from agent.spec.provenance import Origin
from agent.spec.run_states import RECORD_FILE

T = TypeVar("T")

DIFF_FILE: Final = "source.diff"


def write_origin(directory: RunDirectory, origin: Origin) -> None:
    """Write origin.json, which states where a run comes from. An earlier one is kept as origin-N.json.

    The file exists at every moment. The differences from the last commit (`diff`) are written to source.diff.
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
        "state": follow.summary(state, directory),
        "spec": spec,
        "origin": origin,
        "launch": directory.document(directory.launched.name),
        "course": course,
        "restart_costs": _restart_costs(directory, course, origin, spec),
        "preflight": directory.document(directory.preflight.name),
        "result": directory.document("result.json"),
        "spent": spent.to_document() if (spent := spending.read(directory)) else None,
        "usd": _unless_spoilt(functools.partial(cost, origin, spec, state.updated - state.started)),
        "spot": _unless_spoilt(functools.partial(on_spot, origin, spec, state.updated - state.started)),
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


def cost(origin: Any, spec: Any, seconds: float) -> float | None:
    """Return the cost of the run's nodes and the master for `seconds`, in USD; None if a price is unknown.

    `origin` and `spec` are the run's, as JSON values.
    """
    price = usd_per_hour(origin, spec)
    return None if price is None else round(price * max(0.0, seconds) / 3600, 4)


def usd_per_hour(origin: Any, spec: Any, *, at_most: bool = False) -> float | None:
    """Return the cost per hour of the run's nodes and the master, in USD; None if a price is unknown.

    `origin` and `spec` are the run's, as JSON values. The origin does not contain the type of a node that replaced
    another one after the launch. Such a node counts with the workers' price if all workers have the same one. With
    `at_most`, it counts with the highest price of all types that the worker group may have.
    """
    if not origin or not spec or not origin.get("instance_types"):
        return None
    prices, master = origin["usd_per_hour"], origin.get("master") or ""
    usual = {kind for instance, kind in origin["instance_types"].items() if instance != master}
    if at_most:
        usual |= set(origin.get("worker_types") or ())
    kinds, hosts = origin["instance_types"], {host["instance_id"] for host in spec.get("hosts", ())}
    of_usual = [prices.get(kind) for kind in usual]
    same = of_usual[0] if len(of_usual) == 1 else None
    other = max((price for price in of_usual if price is not None), default=None) if at_most else same
    each = [prices.get(kinds[id]) if id in kinds else other for id in sorted(hosts | {master} - {""})]
    known = [float(price) for price in each if price is not None]
    return sum(known) if known and len(known) == len(each) else None


def on_spot(origin: Any, spec: Any, seconds: float) -> dict[str, Any] | None:
    """Return the number of a run's spot instances, and the cost of its nodes for `seconds` at spot prices.

    `origin` and `spec` are the run's, as JSON values. The fields of the result are `hosts`; `usd`, which includes the
    master and is None if a price is unknown; and `prices_of`, the day of the spot prices. Returns None for a run
    without spot instances. A node that replaced another one after the launch counts as a spot instance if all workers
    were spot instances.
    """
    if not origin or not spec or not origin.get("spot"):
        return None
    master, on_demand = origin.get("master") or "", usd_per_hour(origin, spec)
    kinds, spot = origin["instance_types"], set(origin["spot"])
    workers = set(kinds) - {master}
    hosts = [host["instance_id"] for host in spec.get("hosts", ())]
    ours = [id for id in hosts if id in spot or (id not in kinds and workers <= spot)]
    if not ours:
        return None
    of_workers = {kinds[id] for id in workers}
    usual = of_workers.pop() if len(of_workers) == 1 else ""
    prices = [
        (origin["usd_per_hour"].get(kind), origin["spot_usd_per_hour"].get(kind))
        for kind in (kinds.get(id, usual) for id in ours)
    ]
    usd = None
    if on_demand is not None and all(None not in pair for pair in prices):
        saved = sum(float(full) - float(reduced) for full, reduced in prices)
        usd = round((on_demand - saved) * max(0.0, seconds) / 3600, 4)
    return {"hosts": len(ours), "usd": usd, "prices_of": str(origin.get("spot_prices_of") or "")}


def highest_usd_per_hour(directory: RunDirectory, spec: Any) -> float | None:
    """Return the maximum cost per hour of a run's nodes and the master, in USD; None if a price cannot be read."""
    return _unless_spoilt(lambda: usd_per_hour(directory.document(ORIGIN_FILE), spec, at_most=True))


def _unless_spoilt(compute: Callable[[], T]) -> T | None:
    """Return the result of `compute`; None if a rank has damaged the origin or the spec so that this fails."""
    try:
        return compute()
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None


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
            else _unless_spoilt(functools.partial(cost, origin, spec, each.seconds)),
        }
        for each in restart_costs(follow.metrics(directory), made)
    ]


def checkpoints(directory: RunDirectory) -> list[str]:
    """List the names of a run's checkpoints, oldest first; [] if there are none."""
    folder = directory.path / "checkpoints"
    return sorted(name for name in names_in(folder) if name.startswith("step-")) if is_listed(folder) else []
