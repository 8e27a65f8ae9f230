"""Which resource needs which."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.intrinsics import references
from localcloud.api.cloudformation.types.allowlist import depends_on


def dependencies(resources: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return for each resource the others that it refers to or names under DependsOn."""
    return {
        name: (references(resource.get("Properties")) | set(depends_on(resource))) & (set(resources) - {name})
        for name, resource in resources.items()
    }


def order(needs: Mapping[str, set[str]]) -> list[str]:
    """Return the resources, each after those that it needs.

    Raises ValidationError for a circle.
    """
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        raise ValidationError(f"Circular dependency between resources: [{', '.join(error.args[1])}]") from None
