"""What a run's supervisor takes over from the one before it, which was lost while the run was live."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from agent.files.listing import is_listed
from agent.runs import accepted_spec, going_on
from agent.runs.directory import SUPERVISOR_DIED, RunDirectory
from agent.spec.nodes import Node
from agent.spec.resume import TRAINING
from agent.spec.run import RunSpec
from agent.supervisor.restart import Outcome

RESULT_FILE: Final = "result.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predecessor:
    """The part of a run that its lost supervisor has carried out."""

    fault: str
    """What became of it, in words."""
    started: float
    """When the run was launched, seconds since 1970: the restart goes on with the same attempt."""
    course: dict[str, Any]
    restarts: list[dict[str, Any]]
    """Those that it made itself. The one that begins now stands behind them in the course, where it counts already."""
    wanted: int
    """How many hosts the run began with."""
    left: dict[str, Node]
    """Hosts of earlier attempts that the last one did not have, by their names."""

    def outcome(self, directory: RunDirectory, spec: RunSpec) -> Outcome:
        """Return what has become of its last attempt, of which nothing runs any more.

        Ranks go on without a supervisor, and those of a recipe may have come to their result, which is the last that
        they write.
        """
        if spec.command[:2] == TRAINING and is_listed(directory.path / RESULT_FILE):
            return Outcome(state="succeeded")
        return Outcome(state="failed", reason=f"{SUPERVISOR_DIED}: {self.fault}", fault=self.fault)


def read(directory: RunDirectory, spec: RunSpec, fault: str) -> Predecessor:
    """Read what the lost supervisor of a run has left in its directory. Raises as `RunDirectory.stored_state`."""
    restarts = going_on.restarts_made(directory.path)[:-1]
    earlier = _earlier_specs(directory, len(restarts))
    names = {host.name for host in spec.hosts}
    return Predecessor(
        fault=fault,
        started=directory.stored_state().started,
        course=going_on.read_course(directory.path),
        restarts=restarts,
        wanted=len((earlier or [spec])[0].hosts),
        left={host.name: host for each in earlier for host in each.hosts if host.name not in names},
    )


def _earlier_specs(directory: RunDirectory, restarts: int) -> list[RunSpec]:
    """Return the specs before each of the last restarts, oldest first; one that a rank has changed is left out."""
    count, specs = len(list(directory.path.glob("spec-*.json"))), []
    for number in range(max(0, count - restarts) + 1, count + 1):
        try:
            specs.append(accepted_spec.read(directory.path / f"spec-{number}.json"))
        except (OSError, ValueError):
            continue
    return specs
