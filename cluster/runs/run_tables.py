"""Tables of all runs, of one run's record, and of a fetched run's result."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.files.safe_read import read_regular
from agent.spec.run import with_interpreter
from agent.spec.run_states import LIVE_STATES
from cluster import master_answers as answers
from cluster.aws.prices import as_of
from cluster.nodes.occupancy import describe_replacement, shortened
from cluster.planner.expected_and_actual import outcomes, parts
from cluster.runs import run_owner
from cluster.runs.limit_checks import describe_spent
from cluster.terminal.tables import Table
from cluster.terminal.units import duration


def runs_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """Build the table of runs, newest first. `runs` are the runs' states, oldest first, as from `Supervisor.runs`.

    If any of them belongs to a sweep, two columns show its name, and the run's parameters and repeat. Accuracy is on
    the test images. A run without it shows its validation accuracy, marked as such.
    """
    rows, in_sweeps = [], any(run.get("trial") for run in runs)
    for run in reversed(runs):
        epoch = run.get("epoch") or {}
        rows.append(
            (
                str(run["run_id"]),
                " ".join(str(word) for word in (run["state"], run.get("position")) if word),
                _nodes(run),
                str(epoch.get("epoch", "-")),
                _accuracy(epoch),
                "-" if run.get("position") else duration(float(run["updated"]) - float(run["started"])),
                run_owner.describe(run.get("started_by")) or "-",
                *((trial["sweep"], describe_trial(trial)) if (trial := run.get("trial")) else ("-", "-") * in_sweeps),
                _shortened(str(run.get("reason") or "")),
            )
        )
    return Table(
        title="runs",
        columns=(
            *("run", "state", "nodes", "epochs", "accuracy", "time", "started by"),
            *(("sweep", "parameters") if in_sweeps else ()),
            "reason",
        ),
        rows=tuple(rows),
        expendable=("reason", "epochs", "started by", "sweep"),
    )


def _accuracy(epoch: Mapping[str, Any]) -> str:
    """Return the test accuracy of an epoch, or else its validation accuracy with that word; "-" without either."""
    for key, split in (("test_accuracy", ""), ("validation_accuracy", " validation")):
        if isinstance(value := epoch.get(key), int | float):
            return f"{value:.2%}{split}"
    return "-"


def cost_per_person(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs of each person: started_by, runs (their number), seconds, usd and unpriced. The highest cost
    comes first.

    `usd` leaves out runs whose cost is unknown; `unpriced` is their number.
    """
    people: dict[str, dict[str, Any]] = {}
    for run in runs:
        by, spent = run_owner.describe(run.get("started_by")), run.get("spent") or {}
        person = people.setdefault(by, {"started_by": by, "runs": 0, "seconds": 0.0, "usd": 0.0, "unpriced": 0})
        person["runs"] += 1
        person["seconds"] += float(spent.get("seconds", 0.0))
        person["usd"] += float(spent.get("usd") or 0.0)
        person["unpriced"] += bool(spent) and spent.get("usd") is None
    return sorted(people.values(), key=lambda person: (-person["usd"], person["started_by"]))


def cost_table(people: Sequence[Mapping[str, Any]]) -> Table:
    """Build the table of each person's runs, from `cost_per_person`: their number, time, and cost as far as it is
    known.
    """
    rows = []
    for each in people:
        count = each["unpriced"]
        unpriced = f"; the cost of {count} run{'s' * (count > 1)} is unknown" if count else ""
        cost = f"about ${each['usd']:,.2f}{unpriced}"
        rows.append((each["started_by"] or "-", str(each["runs"]), duration(each["seconds"]), cost))
    return Table(title="cost of runs", columns=("started by", "runs", "time", "cost"), rows=tuple(rows))


def describe_trial(trial: Mapping[str, Any]) -> str:
    """Describe a run's place in its sweep: `lr=0.1, repeat 2`."""
    return ", ".join([*(f"{name}={value}" for name, value in trial["parameters"]), f"repeat {trial['repeat']}"])


def _nodes(run: Mapping[str, Any]) -> str:
    """Return how many nodes a run has or had. For a live run, add their names."""
    hosts = run.get("hosts", ())
    named = shortened(hosts) if run["state"] in LIVE_STATES else ""
    return f"{len(hosts)} ({named})" if named else str(len(hosts))


def record_table(record: Mapping[str, Any]) -> Table:
    """Build the table of one run's record, from the supervisor's `show`: name and value of each known fact.

    The footer has the last five lines of the run's output, if the state has them.
    """
    state, spec, result = record["state"], record.get("spec") or {}, record.get("result") or {}
    took, found = float(state["updated"]) - float(state["started"]), record["checkpoints"]
    asked = spec.get("command")
    command = list(spec.get("launcher") or (with_interpreter("python", asked) if asked else ()))
    rows: list[tuple[str, str]] = [
        ("state", str(state["state"]) + (f": {state['reason']}" if state.get("reason") else "")),
        ("started", f"{datetime.datetime.fromtimestamp(state['started'], datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"),
        *([("started by", run_owner.describe(by, identity=True))] if (by := state.get("started_by")) else []),
        ("time", duration(took) + (f", attempt {record['attempts']}" if record["attempts"] > 1 else "")),
        ("nodes", ", ".join(f"{h['name']} ({h['address']}, {h['slots']} slots)" for h in spec.get("hosts", ()))),
        ("command", shlex.join(command)),
        *([("launched", shlex.join(launched["command"]))] if (launched := record.get("launch")) else []),
        *((name, str(spec[name])) for name in ("agent", "payload", "program") if spec.get(name)),
        ("commit", str(spec.get("git_commit") or "-")),
        ("directory", str(record["directory"])),
        *([("sweep", _describe_sweep(trial))] if (trial := spec.get("trial") or {}).get("sweep") else []),
        *_origin_rows(record),
        ("checkpoints", ", ".join([str(len(found)), *(f"last {name}" for name in found[-1:])])),
        ("size", f"{record['files']} files, {record['bytes']:,} bytes"),
    ]
    if state.get("exit_code") is not None:
        rows.append(("exit code", str(state["exit_code"])))
    rows += [(key.replace("_", " "), _plain(key, value)) for key, value in result.items() if _is_plain(value)]
    lines = tuple(f"  {line}" for line in (state.get("last_lines") or ())[-5:])
    return Table(title=f"run {record['run_id']}", columns=("", ""), rows=tuple(rows), footer=lines)


def _describe_sweep(trial: Mapping[str, Any]) -> str:
    seed = "" if trial.get("seed") is None else f", seed {trial['seed']}"
    return f"{trial['sweep']}, run {trial['number']}: {describe_trial(trial)}{seed}"


def _origin_rows(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return rows (name, value) on the run's origin, cost, history and environment, as far as its record has them."""
    origin, course = record.get("origin") or {}, record.get("course") or {}
    rows = []
    if origin.get("diff_bytes"):
        rows.append(("changed since", f"{origin['diff_bytes']:,} bytes in source.diff"))
    if origin.get("template_sha256"):
        rows.append(("template", str(origin["template_sha256"])[:16]))
    if record.get("usd") is not None:
        dated = as_of(origin.get("prices_of") or "")
        rows.append(("cost", f"about ${record['usd']:.2f} for its instances{dated}"))
    if spot := record.get("spot"):
        rows.append(("on spot", describe_spot(spot)))
    if expected := _estimated(record):
        rows.append(("estimated", expected))
        rows += [(f"  {name}", _beside(*rest)) for name, *rest in (each.texts for each in parts(outcomes(record)))]
    if told := describe_spent(record):
        rows.append(("bound", told))
    if (warning := course.get("together")) and warning not in str(record["state"].get("reason")):
        rows.append(("warning", str(warning).removeprefix("warning: ")))
    if (unpublished := course.get("unpublished")) and unpublished not in str(record["state"].get("reason")):
        rows.append(("warning", str(unpublished)))
    if workers := course.get("workers"):
        rows.append(("workers", str(workers)))
    rows += [("not notified", str(trouble)) for trouble in course.get("notify") or ()]
    costs = record.get("restart_costs") or ()
    for n, again in enumerate(course.get("restarts") or (), start=1):
        hosts = ", ".join(again["hosts"])
        cost = _cost_of_restart(costs[n - 1]) if n <= len(costs) else ""
        rows.append((f"restart {n}", f"{again['for']}; after {again['waited_s']:g} s on {hosts}{cost}"))
    rows += [("replaced", describe_replacement(each)) for each in course.get("replaced") or ()]
    rows += [("alarm", line) for line in record.get("alarms") or ()]
    preflight = record.get("preflight") or {}
    for name, key in (("degraded", "allowed"), ("warning", "warnings")):
        if found := preflight.get(key):
            rows.append((name, "; ".join(f"{each['node']}: {each['what']}".lstrip(": ") for each in found)))
    if (runtime := course.get("runtime") or {}).get("path"):
        versions = ", ".join(f"{name} {version}" for name, version in (runtime.get("versions") or {}).items())
        rows.append(("runtime", " ".join(filter(None, [runtime["path"], runtime.get("kind")]))))
        rows += [("versions", versions)] if versions else []
    copy, trouble = course.get("archive"), course.get("trouble")
    if copy:
        rows.append(("copy", f"{copy} (incomplete: {trouble})" if trouble else copy))
    elif trouble:
        rows.append(("copy", f"none: {trouble}"))
    return rows


def describe_spot(spot: Mapping[str, Any]) -> str:
    """Describe how many nodes were spot instances, and the run's cost at spot prices if it is known."""
    nodes = f"{spot['hosts']} node{'s' * (spot['hosts'] != 1)}"
    if spot.get("usd") is None:
        return f"{nodes}, cheaper than on demand; `fab prices --refresh` reads the spot prices for later runs"
    return f"{nodes}; about ${spot['usd']:.2f} with spot prices{as_of(spot['prices_of'])}"


def _cost_of_restart(recovery: Mapping[str, Any]) -> str:
    """Describe the cost of a restart: repeated steps, time without a step, and price; "" if nothing is recorded."""
    lost, seconds, usd = recovery.get("steps_lost"), recovery.get("seconds"), recovery.get("usd")
    told = []
    if lost is not None:
        told.append(f"{lost} step{'s' * (lost != 1)} repeated from step {recovery['went_on_at']}")
    if seconds is not None:
        told.append(f"{duration(seconds)} without a step" + (f", about ${usd:.2f}" if usd is not None else ""))
    return f"; {', '.join(told)}" if told else ""


def _estimated(record: Mapping[str, Any]) -> str:
    """Describe a run's estimated and actual time and cost; "" for a record without a valid estimate."""
    try:
        estimate, state = record["origin"]["estimate"], record["state"]
        seconds, usd = estimate["seconds"], estimate["usd"]
        span = f"{duration(seconds['low'])} to {duration(seconds['high'])}"
        price = f", ${usd['value']:,.2f}" if usd else ""
        spent = f", ${record['usd']:,.2f}" if record.get("usd") is not None else ""
        took = duration(float(state["updated"]) - float(state["started"]))
        return f"{duration(seconds['value'])} ({span}){price}; took {took}{spent}"
    except (KeyError, TypeError, ValueError):
        return ""


def _beside(expected: str, actual: str, by: str) -> str:
    return f"{expected}, was {actual}" + (f" ({by})" if by else "")


def _shortened(text: str, length: int = 60) -> str:
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= length else line[: length - 3] + "..."


def result_table(directory: Path) -> Table:
    """Build the table of a fetched run's result.json: its plain values, in file order. Without a valid file, show the
    run's state.
    """
    path = directory / "result.json"
    try:
        result = answers.parse(read_regular(path))
    except (OSError, ValueError):
        result = None
    if not isinstance(result, dict):
        what = "no result of" if path.exists() else "run"  # a user program writes no result
        return Table(title=f"{what} {directory.name}", columns=("", ""), rows=_state_rows(directory))
    rows = [(key.replace("_", " "), _plain(key, value)) for key, value in result.items() if _is_plain(value)]
    return Table(title=f"result of {directory.name}", columns=("", ""), rows=tuple(rows))


def _state_rows(directory: Path) -> tuple[tuple[str, str], ...]:
    """Return rows (name, value) with the state and reason of a run without a result, as they were when it was fetched.

    If state.json is missing or invalid, the state is "unknown".
    """
    try:
        state = answers.parse(read_regular(directory / "state.json"))
        return tuple((key, str(state[key])) for key in ("state", "reason") if state[key])
    except (OSError, ValueError, KeyError, TypeError):
        return (("state", "unknown"),)


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return 0 < len(value) <= 16 and all(isinstance(item, str | int | float) for item in value)
    return isinstance(value, str | int | float)


def _plain(key: str, value: object) -> str:
    """Format a value of a result: an accuracy in percent, `finished` as date and time, a list with commas, others by
    type.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "finished" and not answers.moment(value) and isinstance(value, int | float):
        return f"{datetime.datetime.fromtimestamp(value, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, int):
        return f"{value:,}" if key != "seed" else str(value)
    if isinstance(value, float):
        return f"{value:.2%}" if "accuracy" in key else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list):
        return ", ".join(_plain(key, item) for item in value)
    return str(value)
