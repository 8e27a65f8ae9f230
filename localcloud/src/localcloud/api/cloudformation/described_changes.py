"""The changes that a change set would make, as DescribeChangeSet and `cdk diff` show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from localcloud.api.cloudformation.intrinsics import dependencies, order, references, split_attribute
from localcloud.api.cloudformation.stacks import Resource, Stack, Target
from localcloud.api.cloudformation.template import walk
from localcloud.api.cloudformation.types.allowlist import RESOURCE_TYPES
from localcloud.api.cloudformation.types.resource_type import ResourceType

# A resource's attributes next to its properties, with the API's names. Changes of these never replace the resource.
_ATTRIBUTES = ("Metadata", "CreationPolicy", "UpdatePolicy", "DeletionPolicy", "UpdateReplacePolicy")
_TAGS = "Tags"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Detail:
    """One reason for a resource's change."""

    attribute: str
    """`Properties`, `Tags`, or one of `_ATTRIBUTES`."""
    name: str = ""
    """The changed property. Empty for other attributes."""
    source: str = "DirectModification"
    cause: str = ""
    """The parameter, resource or `Resource.Attr` that the value comes from. Empty if the template itself changed."""


def describe(stack: Stack, target: Target, wanted: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes from a stack's resources to a target, in the API's form.

    `wanted`: the target's active resources, by logical id. A resource also changes if it refers to a changed launch
    template, or to a resource that will or may be replaced.
    """
    parameters = _changed_parameters(stack, target)
    found: dict[str, dict[str, Any]] = {}
    touched: set[str] = set()
    # In execution order, because a resource may refer to resources further down in the template.
    for name in order(dependencies(wanted)):
        declaration, resource = wanted[name], stack.resources.get(name)
        if resource is None or resource.physical is None:
            found[name] = _change("Add", name, declaration["Type"])
            continue
        details = list(_details(resource.declaration, declaration, parameters, touched))
        if details or resource.type != declaration["Type"]:
            change = _modification(resource, declaration["Type"], details)
            found[name] = change
            # References to the resource change only if it is replaced or is a launch template with a new version. For a
            # conditional replacement, AWS does not know either.
            if change["ResourceChange"]["Replacement"] != "False" or declaration["Type"] == "AWS::EC2::LaunchTemplate":
                touched.add(name)
    for name, resource in stack.resources.items():
        if name not in wanted:
            change = _change("Remove", name, resource.type)
            kept = str(resource.declaration.get("DeletionPolicy", "Delete")).startswith("Retain")
            change["ResourceChange"].update(
                PhysicalResourceId=resource.physical_id, PolicyAction="Retain" if kept else "Delete"
            )
            found[name] = change
    return [found[name] for name in dict.fromkeys((*wanted, *stack.resources)) if name in found]


def _changed_parameters(stack: Stack, target: Target) -> set[str]:
    before = stack.target.parameters if stack.target else {}
    return {
        key for key, parameter in target.parameters.items() if key not in before or before[key].value != parameter.value
    }


def _change(action: str, name: str, type_name: str) -> dict[str, Any]:
    """Return a change of a resource in the API's form, without details. `action`: Add, Modify or Remove."""
    return {
        "Type": "Resource",
        "ResourceChange": {
            "Action": action,
            "LogicalResourceId": name,
            "ResourceType": type_name,
            "Scope": [],
            "Details": [],
        },
    }


def _details(
    old: Mapping[str, Any], new: Mapping[str, Any], parameters: set[str], touched: set[str]
) -> Iterator[_Detail]:
    """Yield the reasons for a resource's change from its old to its new declaration. A property may have several.

    `parameters`: names of changed parameters. `touched`: logical ids of resources whose id or attributes may change.
    """
    before, after = old.get("Properties") or {}, new.get("Properties") or {}
    for key in sorted({*before, *after}):
        attribute, name = ("Tags", "") if key == _TAGS else ("Properties", key)
        if before.get(key) != after.get(key):
            yield _Detail(attribute=attribute, name=name)
        for cause in sorted(references(after.get(key)) & parameters):
            yield _Detail(attribute=attribute, name=name, source="ParameterReference", cause=cause)
        for source, cause in sorted(_sources(after.get(key), touched)):
            yield _Detail(attribute=attribute, name=name, source=source, cause=cause)
    for key in _ATTRIBUTES:
        if old.get(key) != new.get(key):
            yield _Detail(attribute=key)


def _sources(value: Any, touched: set[str]) -> set[tuple[str, str]]:
    """Return the references in a value to `touched` resources, as pairs of kind and name.

    The pair is (`ResourceReference`, resource) for an id, or (`ResourceAttribute`, `resource.attribute`).
    """
    attributes = set()
    for each in walk(value):
        if each.get("Fn::GetAtt"):
            name, key = split_attribute(each["Fn::GetAtt"])
            if name in touched:
                attributes.add(("ResourceAttribute", f"{name}.{key}"))
    named = {cause.split(".", 1)[0] for _, cause in attributes}
    plain = {each["Ref"] for each in walk(value) if isinstance(each.get("Ref"), str)} & touched
    # Fn::Sub may refer to ids or attributes. If it is the only reference, it counts as a reference to the resource's
    # id.
    others = (references(value) & touched) - named
    return attributes | {("ResourceReference", cause) for cause in plain | others}


def _modification(resource: Resource, type_name: str, details: list[_Detail]) -> dict[str, Any]:
    """Return the change of an existing resource in the API's form, including whether the resource is replaced.

    `type_name`: the resource's type in the new template.
    """
    recreations = [_recreation(RESOURCE_TYPES[type_name], each) for each in details]
    shown = zip(details, recreations, strict=True)
    replacing = {each.name or each.attribute for each, recreation in shown if recreation == "Always"}
    direct = {each.name or each.attribute for each in details if each.source == "DirectModification"}
    replacement = "False"
    if resource.type != type_name or replacing & direct:
        replacement = "True"
    elif replacing or "Conditionally" in recreations:
        # Whether a referenced value really changes is only known after the resource has been created.
        replacement = "Conditional"
    change = _change("Modify", resource.logical_id, type_name)
    change["ResourceChange"].update(
        PhysicalResourceId=resource.physical_id,
        Replacement=replacement,
        Scope=sorted({each.attribute for each in details}),
        Details=[_shown(*each) for each in zip(details, recreations, strict=True)],
    )
    if replacement != "False":
        # The old resource's declaration decides, as when the change is executed.
        kept = resource.declaration.get("UpdateReplacePolicy") == "Retain"
        change["ResourceChange"]["PolicyAction"] = "ReplaceAndRetain" if kept else "ReplaceAndDelete"
    return change


def _recreation(resource_type: ResourceType, detail: _Detail) -> str:
    """Return whether a change of this detail replaces the resource: Always, Conditionally or Never.

    ResourceChanger follows the same rules when the change is executed.
    """
    if detail.attribute in _ATTRIBUTES:
        return "Never"
    name = detail.name or _TAGS
    if resource_type.update is None or name in resource_type.replaced_by:
        return "Always"
    return "Conditionally" if name in resource_type.perhaps_replaced_by else "Never"


def _shown(detail: _Detail, recreation: str) -> dict[str, Any]:
    """Return a detail in the API's form. `recreation` is the result of `_recreation`."""
    name = {"Name": detail.name} if detail.name else {}
    cause = {"CausingEntity": detail.cause} if detail.cause else {}
    return {
        "Target": {"Attribute": detail.attribute, "RequiresRecreation": recreation, **name},
        # A parameter's value is known in advance, a resource's value only after its creation.
        "Evaluation": "Dynamic" if detail.source.startswith("Resource") else "Static",
        "ChangeSource": detail.source,
        **cause,
    }
