"""Read the runs of a sweep, and hold the rest if the first run fails soon after its launch.

All runs of a sweep have the same program. If it has an error, or rejects a value, all runs would otherwise fail one
after the other.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Final

from agent.errors import SpecError, malformed
from agent.runs import run_summary
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec import untrusted_json
from agent.spec.run import RunSpec
from agent.spec.run_states import QUEUED
from agent.spec.submission import Submission

SETTLED_S: Final = 30.0
"""The other runs start after the first one has trained for this long, has completed an epoch, or has ended."""
AT_ONCE_S: Final = 120.0
"""If the first run fails within this time after its launch, the queued runs do not start."""


def parse(text: str) -> list[Submission]:
    """Parse the submissions of a sweep's runs from JSON: `origin`, and `runs`, each with `spec` and `estimate`.

    Raises SpecError if the text is invalid.
    """
    try:
        document = untrusted_json.parse(text)
        origin = document["origin"]
        return [
            Submission.from_json(
                json.dumps({"spec": run["spec"], "origin": {**origin, "estimate": run.get("estimate") or {}}})
            )
            for run in document["runs"]
        ]
    except SpecError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise SpecError(
            f"the laptop sent an invalid list of a sweep's runs: {malformed(error)}; repeat the command"
        ) from None


def reason_to_hold(runs: Runs, spec: RunSpec) -> str:
    """Return why a run must not start at all: the first run of its sweep failed soon after its launch; "" otherwise."""
    first = _first(runs, spec)
    if first is None or not _failed_at_once(*first):
        return ""
    directory, state = first
    return (
        f"not started: {directory.run_id}, the first run of sweep {spec.trial.sweep}, failed immediately: "
        f"{state.reason}; correct the program or the values and start the sweep again, or start the others anyway: "
        f"`fab sweep --resume {spec.trial.sweep}`"
    )


def reason_to_wait(runs: Runs, spec: RunSpec) -> str:
    """Return why a run must wait for the first run of its sweep; "" if it may start.

    It must wait while the first run is live, until that has trained for SETTLED_S or completed an epoch.
    """
    first = _first(runs, spec)
    if first is None or first[1].state == QUEUED or first[1].has_ended or _is_settled(*first):
        return ""
    return f"waiting until the first run of the sweep, {first[0].run_id}, has trained for {SETTLED_S:g} s"


def _first(runs: Runs, spec: RunSpec) -> tuple[RunDirectory, State] | None:
    """Return the first run of a run's sweep; None for this run itself, without a sweep, or if it was removed."""
    if not spec.trial.first or spec.trial.first == spec.run_id:
        return None
    with contextlib.suppress(OSError, ValueError):
        directory = runs[spec.trial.first]
        return directory, directory.effective_state()
    return None


def _failed_at_once(directory: RunDirectory, state: State) -> bool:
    """Return whether a run's launcher failed within AT_ONCE_S of the first launch, without a restart.

    Failures before the launch, or without an exit status of the launcher, do not count.
    """
    launched = _launched(directory)
    is_own = state.state == "failed" and state.exit_code is not None and not directory.restarts_made()
    return is_own and launched is not None and state.updated - launched <= AT_ONCE_S


def _is_settled(directory: RunDirectory, state: State) -> bool:
    launched = _launched(directory)
    if state.state != "running" or launched is None:
        return False
    return time.time() - launched >= SETTLED_S or any(
        each.get("event") == "epoch" for each in run_summary.metrics(directory)
    )


def _launched(directory: RunDirectory) -> float | None:
    """Return when the run was launched, in seconds since 1970, from its timeline; None if it was not."""
    times = directory.course().get("times")
    launched = times.get("launched") if isinstance(times, dict) else None
    return launched if isinstance(launched, int | float) else None
