"""The data that a new supervisor takes over from the lost supervisor of a live run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from agent.files.safe_read import is_listed
from agent.runs.run_directory import SUPERVISOR_DIED, RunDirectory
from agent.spec.nodes import Node
from agent.spec.run import TRAINING, RunSpec
from agent.supervisor.restart import Outcome

RESULT_FILE: Final = "result.json"
LOST: Final = "its supervisor was lost"
WANTED: Final = "wanted"
"""Key in the run's timeline: the number of hosts that the run started with."""
LEFT: Final = "left"
"""Key in the run's timeline: hosts of earlier attempts that the current attempt does not use."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LostSupervisor:
    """The progress of a run under its lost supervisor."""

    fault: str
    """What happened to the supervisor, as text."""
    reason: str
    """The reason in the run's state: the number of the restart, for the time until the new supervisor sets another."""
    started: float
    """`State.started` of the run, which does not change at a restart."""
    course: dict[str, Any]
    restarts: list[dict[str, Any]]
    """The restarts made so far. The timeline already contains one more: the restart that begins now."""
    wanted: int
    """Number of hosts that the run started with."""
    left: dict[str, Node]
    """Hosts of earlier attempts that the last attempt did not use, by name."""

    def outcome(self, directory: RunDirectory, spec: RunSpec) -> Outcome:
        """Return the outcome of the last attempt, after its remaining processes were killed: success or failure.

        Ranks continue without a supervisor. The ranks of a recipe may have completed the training: they write the file
        with the result last, so its existence means success. Otherwise the attempt failed because of `fault`.
        """
        if spec.command[:2] == TRAINING and is_listed(directory.path / RESULT_FILE):
            return Outcome(state="succeeded")
        reason = SUPERVISOR_DIED if self.fault == LOST else f"{SUPERVISOR_DIED}: {self.fault}"
        return Outcome(state="failed", reason=reason, fault=self.fault)


def read(directory: RunDirectory, spec: RunSpec, fault: str) -> LostSupervisor:
    """Read the data of a run's lost supervisor from its directory and its stored state.

    `fault` describes what happened to the supervisor. A malformed timeline counts as empty. Raises FileNotFoundError if
    the run does not exist.
    """
    course, state = directory.course(), directory.stored_state()
    wanted, names = course.get(WANTED), {host.name for host in spec.hosts}
    return LostSupervisor(
        fault=fault,
        started=state.started,
        reason=state.reason,
        course=course,
        restarts=directory.restarts_made()[:-1],
        wanted=wanted if type(wanted) is int and wanted > 0 else len(spec.hosts),
        left={name: host for name, host in _hosts(course.get(LEFT)).items() if name not in names},
    )


def document_of(left: Mapping[str, Node]) -> list[dict[str, Any]]:
    """Return the hosts that a run no longer uses as JSON values, for its timeline."""
    return [dataclasses.asdict(node) for node in left.values()]


def _hosts(documents: Any) -> dict[str, Node]:
    """Return the hosts in the output of `document_of`, by name. Invalid ones are left out."""
    found = {}
    for each in documents if isinstance(documents, list) else ():
        with contextlib.suppress(TypeError, ValueError):
            node = Node(**each)
            found[node.name] = node
    return found
