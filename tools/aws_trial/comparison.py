"""Compare what a trial observed with what the embedded cloud gave. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tools.aws_trial.observation import Calls, Observation, Resource

_ABSENT: Final = "-"
_BACKGROUND: Final = "pricing:GetProducts"
"""Asked in the background, and kept on the laptop: whether it was answered before a task ended is chance."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One answer that is not the embedded cloud's."""

    topic: str
    """`commands`, `resources`, `calls`, `refusals` or `facts`."""
    name: str
    expected: str
    """What the embedded cloud gave."""
    observed: str


def compare(observed: Observation, expected: Observation) -> tuple[Difference, ...]:
    """Return where two trials differ, but for their times and for fields of answers."""
    return (
        *_differing(
            "commands",
            {each.name: f"exit code {each.exit_code}" for each in expected.commands},
            {each.name: f"exit code {each.exit_code}" for each in observed.commands},
        ),
        *_differing("resources", _ways(expected.resources), _ways(observed.resources)),
        *_differing("calls", _errors(expected.calls), _errors(observed.calls)),
        *_differing(
            "refusals",
            {each.name: f"{each.code or 'not refused'}: {each.message}" for each in expected.refusals},
            {each.name: f"{each.code or 'not refused'}: {each.message}" for each in observed.refusals},
        ),
        *_differing("facts", expected.facts, observed.facts),
    )


def _differing(topic: str, expected: Mapping[str, str], observed: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted({*expected, *observed}):
        before, now = expected.get(name, _ABSENT), observed.get(name, _ABSENT)
        if before != now:
            yield Difference(topic=topic, name=name, expected=before, observed=now)


def _ways(resources: Iterable[Resource]) -> dict[str, str]:
    return {
        f"{each.phase} {each.logical_id} ({each.type})": " > ".join([*each.states, *each.reasons]) for each in resources
    }


def _errors(calls: Iterable[Calls]) -> dict[str, str]:
    """Return the refusals of each operation; an operation that only one trial called is no difference by itself."""
    return {each.operation: ", ".join(each.errors) for each in calls if each.errors and each.operation != _BACKGROUND}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of an operation's answers that only one of two clouds gave."""

    operation: str
    missing: tuple[str, ...]
    """The embedded cloud gave them, and the other did not."""
    more: tuple[str, ...]
    """The embedded cloud lacks them."""


def compare_fields(observed: Observation, expected: Observation) -> tuple[Fields, ...]:
    """Return how the shapes of the answers differ, for the operations that both trials called."""
    before = {each.operation: set(each.fields) for each in expected.calls}
    found = []
    for each in observed.calls:
        if each.operation not in before or set(each.fields) == before[each.operation]:
            continue
        here = set(each.fields)
        missing, more = before[each.operation] - here, here - before[each.operation]
        found.append(Fields(operation=each.operation, missing=tuple(sorted(missing)), more=tuple(sorted(more))))
    return tuple(found)


def unshared_operations(observed: Observation, expected: Observation) -> tuple[str, ...]:
    """Return the operations that only one of the trials called."""
    return tuple(sorted({each.operation for each in observed.calls} ^ {each.operation for each in expected.calls}))
