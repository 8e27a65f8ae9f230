"""Whether a run goes on by itself after its supervisor was lost, by the files in its directory.

It does where this master has accepted its spec, a supervisor has begun it, a restart is left (`--restarts`), and nobody
has asked it to stop. The scheduler, which watches such runs, takes them up within seconds; until then they count as
live: their nodes are no other run's, and whoever follows them goes on following.
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
    """Return whether the run in a directory is one whose supervisor is to be watched: it may be restarted at all."""
    return _restartable_spec(path) is not None


def may_go_on(path: Path) -> bool:
    """Return whether the run in a directory may go on if its supervisor is lost now."""
    spec = _restartable_spec(path)
    if spec is None or (path / STOP_FILE).exists():
        return False
    times = read_course(path).get("times")
    return isinstance(times, dict) and "started" in times and len(restarts_made(path)) < spec.restarts


def read_course(path: Path) -> dict[str, Any]:
    """Return the course of the run in a directory; {} where none can be read."""
    try:
        course = json_text.parse(read_listed(path / COURSE_FILE))
    except (OSError, ValueError):
        return {}
    return course if isinstance(course, dict) else {}


def restarts_made(path: Path) -> list[dict[str, Any]]:
    """Return the restarts that a run has made since it was started or resumed, as its course has them."""
    restarts = read_course(path).get("restarts")
    return [each for each in restarts if isinstance(each, dict)] if isinstance(restarts, list) else []


def _restartable_spec(path: Path) -> RunSpec | None:
    try:
        spec = accepted_spec.read(path.name)
    except (OSError, ValueError):
        return None
    return spec if spec.restarts and not spec.launcher else None
