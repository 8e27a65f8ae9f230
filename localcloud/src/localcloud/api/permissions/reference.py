"""AWS's service authorization reference: which actions there are, and which types of resources each takes."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

from localcloud.api.permissions.evaluator import PACKAGES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Action:
    """One action."""

    name: str
    """With its service: `s3:PutObject`."""
    resources: Mapping[str, bool]
    """The types of resources that a policy can name for it, and whether each is always asked for; empty: only *."""


def action(service: str, name: str) -> Action | None:
    """Return an action of a service; None where AWS has none of this name."""
    found = _actions(service).get(name.lower())
    if found is None:
        return None
    types = {each["name"]: bool(each["required"]) for each in found["resourceTypes"]}
    return Action(name=f"{service}:{found['name']}", resources=types)


def pattern(service: str, resource_type: str) -> str:
    """Return the ARN of a type of resources, with variables such as ${Region}."""
    return str(_types(service)[resource_type.lower()]["arn"])


@functools.cache
def _actions(service: str) -> dict[str, Any]:
    return _read("actions", service)


@functools.cache
def _types(service: str) -> dict[str, Any]:
    return _read("resourceTypes", service)


def _read(kind: str, service: str) -> dict[str, Any]:
    path = PACKAGES / "iam-data" / "data" / kind / f"{service}.json"
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
