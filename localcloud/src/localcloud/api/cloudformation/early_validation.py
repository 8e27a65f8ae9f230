"""CloudFormation's early validation: checks properties with known values against their schemas before a deployment.

Since November 2025, a change set whose template violates a schema is created with the status FAILED. Its reason names
the validation, and DescribeEvents returns the details. CreateStack and UpdateStack validate too, since June 2026.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from moto.core.exceptions import ServiceException

from localcloud.api.cloudformation import schemas
from localcloud.api.cloudformation.intrinsics import FUNCTIONS, NO_VALUE, Scope

FAILED: Final = (
    "The following hook(s)/validation failed: [AWS::EarlyValidation::PropertyValidation]. To troubleshoot Early "
    "Validation errors, use the DescribeEvents API for detailed failure information."
)
"""AWS's status reason of a change set that failed early validation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A property of a resource that violates its schema."""

    logical_id: str
    type: str
    path: str
    """Path in the template, such as `/Resources/Runs/Properties/BucketName`."""
    reason: str


def findings(scope: Scope, resources: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Return the schema violations in the known properties of a template's resources, which need not exist yet."""
    found = []
    for name, declaration in resources.items():
        properties = known(scope, dict(declaration.get("Properties") or {}))
        for each in schemas.check(declaration["Type"], properties):
            path = "/".join(("", "Resources", name, "Properties", *each.path))
            found.append(Finding(logical_id=name, type=declaration["Type"], path=path, reason=each.text))
    return found


def known(scope: Scope, value: Any) -> Any:
    """Return a value with its intrinsic functions resolved, or NO_VALUE if the value is to be omitted.

    A function without a known result becomes UNKNOWN, for example a reference to a resource that does not exist yet.
    """
    if isinstance(value, list):
        items = (known(scope, each) for each in value)
        return [each for each in items if each is not NO_VALUE]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, argument),) = value.items()
        if key == "Fn::If":
            return known(scope, argument[1] if scope.condition(argument[0]) else argument[2])
        if key in FUNCTIONS:
            return _resolved(scope, value)
    pairs = ((key, known(scope, each)) for key, each in value.items())
    return {key: each for key, each in pairs if each is not NO_VALUE}


def _resolved(scope: Scope, value: Any) -> Any:
    """Resolve an intrinsic function; return UNKNOWN after an error."""
    try:
        return scope.resolve(value)
    except ServiceException:
        return schemas.UNKNOWN
