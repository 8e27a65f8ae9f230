"""What IAM's policy documents say: their statements, actions, and the principals that must exist.

A principal by the ARN of a role or user must exist when a policy that names it is written: AWS keeps its unique id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Document = Mapping[str, Any]

_ENTITY: Final = re.compile(r"arn:aws:iam::(?P<account>\d{12}):(?P<kind>role|user)/(?P<path>.+)")


def statements(document: str | Document) -> list[Document]:
    """Return the statements of a policy; none of text that is no JSON object."""
    try:
        found = json.loads(document) if isinstance(document, str | bytes) else document
    except ValueError:
        return []
    given = found.get("Statement", []) if isinstance(found, Mapping) else []
    return [each for each in listed(given) if isinstance(each, Mapping)]


def listed(value: Any) -> list[Any]:
    """Return a value that may be one or a list as a list."""
    return list(value) if isinstance(value, list) else [value]


def principals(statement: Document, kind: str = "AWS") -> list[str]:
    """Return the principals of a kind that a statement names; `*` stands for all."""
    given = statement.get("Principal", {})
    return [str(each) for each in (listed(given.get(kind, [])) if isinstance(given, Mapping) else [given])]


def missing_principals(iam: Any, account: str, document: str | Document) -> Iterator[str]:
    """Yield the ARNs of this account's roles and users that a policy names as principals and that are not there."""
    for statement in statements(document):
        for arn in principals(statement):
            entity = _ENTITY.fullmatch(arn)
            if entity and entity["account"] == account and not _exists(iam, entity["kind"], arn):
                yield arn


def _exists(iam: Any, kind: str, arn: str) -> bool:
    return any(each.arn == arn for each in (iam.roles if kind == "role" else iam.users).values())
