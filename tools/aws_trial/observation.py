"""What a trial observes, as plain values that are written to JSON and compared."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

FORMAT: Final = 1
"""Version of the file. A file of another version is refused."""


class ObservationError(ValueError):
    """Report a file that holds no observation of this version."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One command of the trial, as it ended."""

    name: str
    line: str
    """As a user would type it, redacted."""
    exit_code: int
    seconds: float
    last_lines: tuple[str, ...] = ()
    """The end of the output of a command that failed, redacted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource's way through a creation or deletion of the stack."""

    phase: str
    """`create` or `delete`."""
    logical_id: str
    type: str
    states: tuple[str, ...]
    """CloudFormation's states in order, each once in a row."""
    seconds: float
    reasons: tuple[str, ...] = ()
    """The reasons that came with failures, redacted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calls:
    """All calls of one operation that the tasks made."""

    operation: str
    """As `ec2:DescribeInstances`."""
    count: int
    seconds: float
    """The median of a call."""
    retries: int
    errors: tuple[str, ...]
    """The codes of refusals, each once, sorted."""
    fields: tuple[str, ...]
    """The paths of all fields of all answers, sorted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """One call that AWS must refuse, and its answer."""

    name: str
    code: str
    """"" if it was not refused."""
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """All that one trial observed."""

    where: str
    """`aws REGION`, or `embedded cloud`."""
    date: str
    commit: str
    """Of the checkout, with + after it where files were changed."""
    settings: Mapping[str, str]
    commands: tuple[Command, ...]
    resources: tuple[Resource, ...]
    calls: tuple[Calls, ...]
    refusals: tuple[Refusal, ...]
    facts: Mapping[str, str]
    """Other answers by name: states of instances, activities of the group, findings of the doctor."""
    left: tuple[str, ...]
    """What was left after the destruction, redacted."""

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1, sort_keys=True) + "\n"


def read(path: Path) -> Observation:
    """Read a file. Raises ObservationError for one that is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ObservationError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ObservationError(f"{path} is no observation of format {FORMAT}")
    try:
        return _parse(found)
    except (KeyError, TypeError) as error:
        raise ObservationError(f"{path} lacks or misnames a field: {error}") from None


def _parse(found: Mapping[str, Any]) -> Observation:
    return Observation(
        where=found["where"],
        date=found["date"],
        commit=found["commit"],
        settings=found["settings"],
        commands=tuple(Command(**_tuples(each)) for each in found["commands"]),
        resources=tuple(Resource(**_tuples(each)) for each in found["resources"]),
        calls=tuple(Calls(**_tuples(each)) for each in found["calls"]),
        refusals=tuple(Refusal(**each) for each in found["refusals"]),
        facts=found["facts"],
        left=tuple(found["left"]),
    )


def _tuples(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}


def collapsed(states: Iterable[str]) -> tuple[str, ...]:
    """Return states without those that repeat the one before."""
    found: list[str] = []
    for state in states:
        if not found or found[-1] != state:
            found.append(state)
    return tuple(found)


def median(values: Sequence[float]) -> float:
    """Return the median, of two the lower one. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values have no median")
    return sorted(values)[(len(values) - 1) // 2]
