"""Parameters of a template: defaults, previous values, types, values from the SSM parameter store, rules."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.intrinsics import Scope
from localcloud.api.cloudformation.template import Template
from localcloud.api.cloudformation.types.resource_type import Clients

_STORED = "AWS::SSM::Parameter::Value<"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a stack."""

    key: str
    given: str
    """The given or default value. For a parameter with an SSM type, this is the SSM parameter's name."""
    value: Any
    """The value that Ref returns."""
    secret: bool
    """Whether the API masks the value (NoEcho)."""
    stored: bool
    """Whether the value is from the SSM parameter store."""


def choose(
    declared: Mapping[str, Any], given: Iterable[Mapping[str, Any]], previous: Mapping[str, Parameter]
) -> dict[str, str]:
    """Return the parameter values that a request gives, by name. Parameters that are left to their default are omitted.

    `declared`: the template's Parameters. `given`: the request's Parameters. UsePreviousValue selects the stack's
    `previous` value. If the stack does not have the parameter yet, its default applies later, as on AWS. Raises
    ValidationError for an unknown parameter.
    """
    chosen: dict[str, str] = {}
    for each in given:
        key = str(each["ParameterKey"])
        if key not in declared:
            raise ValidationError(f"Parameters: [{key}] do not exist in the template")
        if each.get("UsePreviousValue"):
            if key in previous:
                chosen[key] = previous[key].given
        elif "ParameterValue" in each:
            chosen[key] = str(each["ParameterValue"])
    return chosen


def resolve(template: Template, chosen: Mapping[str, str], aws: Clients) -> dict[str, Parameter]:
    """Return all parameters of a template by name, with the `chosen` values or else their defaults.

    Values from the SSM parameter store are read with a client from `aws`. Raises ValidationError for a parameter
    without a value, with an invalid value, or missing in the SSM parameter store.
    """
    found = {}
    missing = []
    for key, declaration in template.get("Parameters", {}).items():
        if key in chosen:
            given = chosen[key]
        elif "Default" in declaration:
            given = str(declaration["Default"])
        else:
            missing.append(key)
            continue
        _check(key, given, declaration)
        found[key] = _parameter(key, given, declaration, aws)
    if missing:
        raise ValidationError(f"Parameters: [{', '.join(missing)}] must have values")
    return found


def _parameter(key: str, given: str, declaration: Mapping[str, Any], aws: Clients) -> Parameter:
    """Return a parameter with its value: read from the SSM parameter store and split into a list, if its type requires.

    Raises ValidationError if the store does not have it, or has it as a SecureString.
    """
    kind = str(declaration.get("Type", "String"))
    value: Any = given
    stored = kind.startswith(_STORED)
    if stored:
        try:
            found = aws.client("ssm").get_parameter(Name=given)["Parameter"]
        except ClientError:
            raise ValidationError(
                f"Unable to fetch parameters [{given}] from parameter store for this account."
            ) from None
        if found["Type"] == "SecureString":
            raise ValidationError(
                f"Parameters [{given}] referenced by template have types not supported by CloudFormation."
            )
        value = found["Value"]
        kind = kind[len(_STORED) : -1]
    if kind == "CommaDelimitedList" or kind.startswith("List<"):
        value = [each.strip() for each in str(value).split(",")] if value else []
    secret = str(declaration.get("NoEcho")).lower() == "true"
    return Parameter(key=key, given=given, value=value, secret=secret, stored=stored)


def _check(key: str, given: str, declaration: Mapping[str, Any]) -> None:
    """Raise ValidationError if a value violates its parameter's declaration: allowed values, pattern, range, length."""
    allowed = declaration.get("AllowedValues")
    if allowed is not None and given not in [str(each) for each in allowed]:
        raise ValidationError(f"Parameter '{key}' must be one of AllowedValues")
    pattern = declaration.get("AllowedPattern")
    if pattern is not None and re.fullmatch(pattern, given) is None:
        hint = declaration.get("ConstraintDescription")
        raise ValidationError(
            f"Parameter '{key}' must match pattern {pattern}"
            if not hint
            else f"Parameter {key} failed to satisfy constraint: {hint}"
        )
    if declaration.get("Type") == "Number":
        try:
            number = float(given)
        except ValueError:
            raise ValidationError(f"Parameter '{key}' must be a number.") from None
        if number < float(low := declaration.get("MinValue", "-inf")):
            raise ValidationError(f"Parameter '{key}' must be a number not less than {low}")
        if number > float(high := declaration.get("MaxValue", "inf")):
            raise ValidationError(f"Parameter '{key}' must be a number not greater than {high}")
        return
    if len(given) < (least := int(declaration.get("MinLength", 0))):
        raise ValidationError(f"Parameter '{key}' must contain at least {least} characters")
    if len(given) > (most := int(declaration.get("MaxLength", 4096))):
        raise ValidationError(f"Parameter '{key}' must contain at most {most} characters")


def check_rules(template: Template, scope: Scope) -> None:
    """Raise ValidationError for the first violated rule of a template, such as the CDK's on the bootstrap's version."""
    for name, rule in template.get("Rules", {}).items():
        if "RuleCondition" in rule and not scope.truth(rule["RuleCondition"]):
            continue
        for assertion in rule.get("Assertions", ()):
            if not scope.truth(assertion["Assert"]):
                hint = assertion.get("AssertDescription", "its assertion does not hold")
                raise ValidationError(f"Template error: Rule {name} failed: {hint}")
