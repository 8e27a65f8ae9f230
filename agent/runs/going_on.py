"""Decide from a run's files whether the run continues automatically after its supervisor was lost.

It continues if all of these hold: this master has accepted its spec, the spec has no custom launcher, a supervisor has
started it, a restart is left (`--restarts`), and no stop was requested. The scheduler watches such runs and starts a
new supervisor within seconds. Until then they count as live: no other run gets their nodes, and `fab follow` continues.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from agent.files.listing import read_listed
from agent.runs import accepted_spec
from agent.spec import json_text
from agent.spec.run import RunSpec

COURSE_FILE: Final = "course.json"
STOP_FILE: Final = "stop.json"


def is_watched(path: Path) -> bool:
    """Return whether the scheduler watches the supervisor of the run in a directory, to restart the run.

    This is so if the run has restarts (`--restarts`), no custom launcher, and a spec that this master has accepted.
    """
    return _restartable_spec(path) is not None


def may_go_on(path: Path) -> bool:
    """Return whether the run in a directory continues automatically if its supervisor is lost now.

    Besides `is_watched`, a supervisor must have started it, a restart must be left, and no stop was requested.
    """
    spec = _restartable_spec(path)
    if spec is None or (path / STOP_FILE).exists():
        return False
    times = read_course(path).get("times")
    return isinstance(times, dict) and "started" in times and len(restarts_made(path)) < spec.restarts


def read_course(path: Path) -> dict[str, Any]:
    """Return the timeline (course.json) of the run in a directory; {} if it is missing or malformed."""
    try:
        course = json_text.parse(read_listed(path / COURSE_FILE))
    except (OSError, ValueError):
        return {}
    return course if isinstance(course, dict) else {}


def restarts_made(path: Path) -> list[dict[str, Any]]:
    """Return the restarts of a run since it was started or resumed, from the timeline in its directory; [] if there are
    none.
    """
    restarts = read_course(path).get("restarts")
    return [each for each in restarts if isinstance(each, dict)] if isinstance(restarts, list) else []


def _restartable_spec(path: Path) -> RunSpec | None:
    try:
        spec = accepted_spec.read(path.name)
    except (OSError, ValueError):
        return None
    return spec if spec.restarts and not spec.launcher else None
