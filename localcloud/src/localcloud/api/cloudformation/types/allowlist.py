"""The allowlist of supported resource types, properties, attributes and functions. Everything else is rejected.

A template is checked before anything is created, so that nothing is ignored silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.intrinsics import FUNCTIONS, PSEUDO, depends_on, references, split_attribute
from localcloud.api.cloudformation.signals import parse_duration
from localcloud.api.cloudformation.template import Template, walk
from localcloud.api.cloudformation.types import (
    access,
    compute,
    file_systems,
    messaging,
    monitoring,
    network,
    security_groups,
    storage,
)
from localcloud.api.cloudformation.types.resource_type import Physical, ResourceType, leave
from localcloud.api.permissions.resource_arns import strings

_ANALYTICS = ResourceType(
    name="AWS::CDK::Metadata",
    honoured=frozenset(),
    inert={"Analytics": "statistics on constructs for AWS"},
    create=lambda context, properties: Physical(id=context.name()),
    delete=leave,
)

_MODULES = (network, security_groups, compute, file_systems, storage, access, monitoring, messaging)

RESOURCE_TYPES: Final[Mapping[str, ResourceType]] = {
    each.name: each for each in (*chain.from_iterable(module.RESOURCE_TYPES for module in _MODULES), _ANALYTICS)
}
"""All resource types, by name."""

# A resource's other supported keys, in addition to Type and Properties. Metadata has no effect; it is for tools.
_ATTRIBUTES = frozenset(
    {"CreationPolicy", "UpdatePolicy", "DeletionPolicy", "UpdateReplacePolicy", "DependsOn", "Condition", "Metadata"}
)
_DELETION_POLICIES = ("Delete", "Retain", "RetainExceptOnCreate")
_REPLACE_POLICIES = ("Delete", "Retain")
_CREATION = {"ResourceSignal": ("Count", "Timeout"), "AutoScalingCreationPolicy": ("MinSuccessfulInstancesPercent",)}
_UPDATE = {
    "AutoScalingRollingUpdate": (
        "MaxBatchSize",
        "MinInstancesInService",
        "MinSuccessfulInstancesPercent",
        "PauseTime",
        "SuspendProcesses",
        "WaitOnResourceSignals",
    ),
    "AutoScalingScheduledAction": ("IgnoreUnmodifiedGroupSizeProperties",),
}

_MAX_PAUSE_S: Final = 3600.0
_PAUSE: Final = (
    "Invalid Autoscaling rolling update policy: PauseTime must be in the ISO8601 time period format and must be no "
    "greater than PT3600S seconds"
)


def check(template: Template, *, holds: Callable[[str], bool]) -> None:
    """Raise ValidationError for unsupported content, duplicate exports, or references to something that does not exist.

    `holds` returns whether a named condition is true. A resource with a false condition is not created and not checked.
    For unsupported content, the message has the logical id, type and property of every problem.
    """
    made = {
        name: resource
        for name, resource in template["Resources"].items()
        if "Condition" not in resource or holds(resource["Condition"])
    }
    problems = [problem for name, resource in made.items() for problem in _problems(name, resource)]
    for name, output in template.get("Outputs", {}).items():
        problems += _unknown_functions(f"output {name}", output)
    if problems:
        raise ValidationError("Template validation error: " + "; ".join(problems))
    _check_exports(template)
    _check_references(template, made)


def _check_exports(template: Template) -> None:
    """Reject duplicate export names. A name from an intrinsic function is not known yet and is checked later."""
    exported = [each["Export"]["Name"] for each in template.get("Outputs", {}).values() if "Export" in each]
    twice = sorted({name for name in exported if isinstance(name, str) and exported.count(name) > 1})
    if twice:
        raise ValidationError(
            f"Template format error: The Outputs section contains duplicate Export names: [{', '.join(twice)}]. "
            "Specify a unique name for each export."
        )


def _problems(name: str, resource: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons to reject a resource: an unsupported type, attribute, property, policy or function."""
    type_name = resource["Type"]
    resource_type = RESOURCE_TYPES.get(type_name)
    if resource_type is None:
        yield f"the embedded cloud does not support {type_name} (resource {name})"
        return
    for attribute in resource:
        if attribute not in _ATTRIBUTES | {"Type", "Properties"}:
            yield f"the embedded cloud does not support the attribute {attribute} of a resource ({name}, {type_name})"
    for path in unknown_paths(resource.get("Properties") or {}, resource_type.paths()):
        reason = f": {resource_type.refused[path]}" if path in resource_type.refused else ""
        yield f"the embedded cloud does not support the property {path} of {type_name} (resource {name}){reason}"
    yield from _policy_problems(name, resource, resource_type)
    yield from _unknown_functions(f"resource {name}", resource)


def unknown_paths(properties: Mapping[str, Any], known: frozenset[str], prefix: str = "") -> list[str]:
    """Return the paths of properties that are not in `known`. Each item of a list is checked like a single object.

    A path in `known` includes everything below it. `prefix` is the path of `properties` with a dot at the end, or ""
    for a resource's own.
    """
    found: list[str] = []
    for key, value in properties.items():
        path = f"{prefix}{key}"
        if path in known:
            continue
        if any(each.startswith(f"{path}.") for each in known):
            for item in _objects(value):
                found += [each for each in unknown_paths(item, known, f"{path}.") if each not in found]
        else:
            found.append(path)
    return found


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in a property's value: the value itself, list items and both branches of Fn::If, but no Ref."""
    if isinstance(value, list):
        for each in value:
            yield from _objects(each)
    elif isinstance(value, dict):
        if set(value) == {"Fn::If"}:
            yield from _objects(value["Fn::If"][1:])
        elif set(value) != {"Ref"}:
            yield value


def _policy_problems(name: str, resource: Mapping[str, Any], resource_type: ResourceType) -> Iterator[str]:
    """Yield the reasons to reject a resource because of its deletion, creation and update policies."""
    where = f"(resource {name}, {resource_type.name})"
    for attribute, allowed in (("DeletionPolicy", _DELETION_POLICIES), ("UpdateReplacePolicy", _REPLACE_POLICIES)):
        if attribute in resource and resource[attribute] not in allowed:
            yield f"the embedded cloud does not support {attribute} {resource[attribute]} {where}"
    for attribute, table in (("CreationPolicy", _CREATION), ("UpdatePolicy", _UPDATE)):
        if attribute not in resource:
            continue
        if attribute not in resource_type.policies:
            yield f"the embedded cloud does not support {attribute} {where}"
            continue
        for policy, values in resource[attribute].items():
            if policy not in table:
                yield f"the embedded cloud does not support {attribute} {policy} {where}"
                continue
            for key, value in values.items():
                if key not in table[policy]:
                    yield f"the embedded cloud does not support {attribute} {policy}.{key} {where}"
                elif key == "PauseTime" and isinstance(value, str) and (parse_duration(value) or 0) > _MAX_PAUSE_S:
                    yield f"{_PAUSE} {where}"
                elif key == "MinInstancesInService" and _at_least(value, (resource.get("Properties") or {})):
                    yield f"MinInstancesInService must be less than the autoscaling group's MaxSize {where}"
                elif key in ("Timeout", "PauseTime") and isinstance(value, str) and parse_duration(value) is None:
                    yield f"{attribute} {policy}.{key} {value} is not an ISO 8601 duration such as PT15M {where}"


def _at_least(value: Any, properties: Mapping[str, Any]) -> bool:
    """Return whether `value`, a MinInstancesInService, is at least the group's MaxSize.

    False if an intrinsic function computes one of the two values.
    """
    known = [str(each) for each in (value, properties.get("MaxSize")) if isinstance(each, str | int)]
    return len(known) == 2 and all(each.isdecimal() for each in known) and int(known[0]) >= int(known[1])


def _unknown_functions(where: str, value: Any) -> Iterator[str]:
    """Yield a problem for each unsupported function and dynamic reference in a part of a template.

    `where` names the part in the problems.
    """
    for each in walk(value):
        for key in each:
            if isinstance(key, str) and key.startswith("Fn::") and key not in FUNCTIONS:
                yield f"the embedded cloud does not support the function {key} ({where})"
    for text in strings(value):
        if "{{resolve:" in text:
            yield f"the embedded cloud does not support dynamic references such as {text} ({where})"


def _check_references(template: Template, made: Mapping[str, Any]) -> None:
    """Raise ValidationError for references to missing resources or unsupported attributes, also in DependsOn.

    A resource with a false condition is not missing.
    """
    known = set(made) | set(template.get("Parameters", {})) | PSEUDO
    declared = known | set(template["Resources"])
    for section, holders in (("Resources", made), ("Outputs", template.get("Outputs", {}))):
        for holder in holders.values():
            unresolved = sorted(references(holder) - declared)
            if unresolved:
                raise ValidationError(
                    f"Template format error: Unresolved resource dependencies [{', '.join(unresolved)}] "
                    f"in the {section} block of the template"
                )
            for each in walk(holder):
                _check_attribute(each.get("Fn::GetAtt"), template)
    for name, resource in made.items():
        for dependency in depends_on(resource):
            if dependency not in template["Resources"]:
                raise ValidationError(
                    f"Template format error: Unresolved resource dependencies [{dependency}] in the Resources block "
                    f"of the template (DependsOn of {name})"
                )


def _check_attribute(getatt: Any, template: Template) -> None:
    if not getatt:
        return
    name, attribute = split_attribute(getatt)
    resource = template["Resources"].get(name)
    resource_type = RESOURCE_TYPES.get(resource["Type"]) if resource else None
    if resource_type is not None and isinstance(attribute, str) and attribute not in resource_type.attributes:
        raise ValidationError(
            f"Template error: resource {name} does not support attribute type {attribute} in Fn::GetAtt"
        )


def needed_capabilities(template: Template) -> list[str]:
    """Return a list with the capability that the caller must acknowledge for the template's IAM resources.

    It is CAPABILITY_NAMED_IAM if one of them has a custom name, otherwise CAPABILITY_IAM. The list is empty if the
    template has no IAM resources.
    """
    named = {
        "AWS::IAM::Role": "RoleName",
        "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
        "AWS::IAM::InstanceProfile": "InstanceProfileName",
    }
    resources = [each for each in template["Resources"].values() if each["Type"].startswith("AWS::IAM::")]
    if any(named.get(each["Type"], "-") in (each.get("Properties") or {}) for each in resources):
        return ["CAPABILITY_NAMED_IAM"]
    return ["CAPABILITY_IAM"] if resources else []
