"""What the policies of a role allow. Only Session Manager asks: an agent without rights must not connect."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator
from typing import Any


def denied(iam: Any, role_name: str, actions: Iterable[str]) -> list[str]:
    """Return the actions that no statement of a role allows, or that one denies; resources are not looked at."""
    statements = list(_statements(iam, role_name))
    return [
        action
        for action in actions
        if not _matches(statements, "Allow", action) or _matches(statements, "Deny", action)
    ]


def _statements(iam: Any, role_name: str) -> Iterator[dict[str, Any]]:
    role = next((each for each in iam.roles.values() if each.name == role_name), None)
    if role is None:
        return
    managed = [
        version.document
        for policy in role.managed_policies.values()
        for version in policy.versions
        if version.version_id == policy.default_version_id
    ]
    for document in (*role.policies.values(), *managed):
        found = json.loads(document)["Statement"] if isinstance(document, str) else document["Statement"]
        yield from found if isinstance(found, list) else [found]


def _matches(statements: Iterable[dict[str, Any]], effect: str, action: str) -> bool:
    return any(
        fnmatch.fnmatchcase(action.lower(), pattern.lower())
        for statement in statements
        if statement["Effect"] == effect
        for pattern in _listed(statement.get("Action", []))
    )


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
