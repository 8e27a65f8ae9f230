"""Parse a CloudFormation change set into the resources that are added, changed, replaced or removed.

All functions are pure. Their inputs are the answer of DescribeChangeSet and the templates before and after.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

ADDED: Final = "added"
CHANGED: Final = "changed"
REPLACED: Final = "REPLACED"
PERHAPS_REPLACED: Final = "perhaps REPLACED"
REMOVED: Final = "REMOVED"
ACTIONS: Final = (REMOVED, REPLACED, PERHAPS_REPLACED, CHANGED, ADDED)
"""What happens to a resource, worst first."""

GROUP: Final = "AWS::AutoScaling::AutoScalingGroup"
# Properties that replace a group only if its update policy says so (`conditionalCreateOnlyProperties` of its schema).
_BY_POLICY: Final = frozenset(
    {"LaunchConfigurationName", "LaunchTemplate", "MixedInstancesPolicy", "VPCZoneIdentifier"}
)
_TEXT_LENGTH: Final = 40
"""Maximum length of a value to show. Longer ones, such as user data, are omitted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One value that differs between the templates."""

    name: str
    """Path of the property, such as LaunchTemplateData.InstanceType, or only its name if the path is unknown."""
    before: str
    """"" if there was no value, or if it is unknown or too long."""
    after: str

    def __str__(self) -> str:
        """Return the last part of the path, followed by `BEFORE -> AFTER` if one of the values is known.

        The other value is then shown as `none`.
        """
        name = self.name.rsplit(".", 1)[-1]
        if not (self.before or self.after):
            return name
        return f"{name} {self.before or 'none'} -> {self.after or 'none'}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """The change of one resource."""

    action: str
    """One of ACTIONS."""
    logical_id: str
    type: str
    physical_id: str
    """"" for an addition."""
    path: str
    """Path of its construct, such as Workers/Template; the logical id if the template has none."""
    properties: frozenset[str]
    """Top-level properties that change, or may change because of another change. Can include Tags."""
    recreating: tuple[str, ...]
    """Properties among them that require a replacement."""
    follows: frozenset[str]
    """Resources whose identity alone decides whether this resource is replaced; empty if something else decides too."""
    policies: tuple[str, ...]
    """Other attributes that change, such as DeletionPolicy."""
    differences: tuple[Difference, ...]
    kept: bool
    """Whether the present resource is kept after its replacement or removal."""

    @property
    def ends(self) -> bool:
        """Return whether the present resource is removed or replaced, or may be replaced."""
        return self.action in (REMOVED, REPLACED, PERHAPS_REPLACED)


def parse(
    description: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    parameters: Mapping[str, tuple[str, str]],
) -> tuple[Change, ...]:
    """Parse the answer of DescribeChangeSet into changes, worst first.

    `before` and `after` are the templates. `parameters` maps each changed parameter to its values before and after.
    """
    found = [
        _change(each["ResourceChange"], before, after, parameters)
        for each in description.get("Changes", ())
        if each.get("Type", "Resource") == "Resource"
    ]
    return tuple(sorted(_resolve(found, after), key=lambda change: ACTIONS.index(change.action)))


def _resolve(found: Sequence[Change], after: Mapping[str, Any]) -> list[Change]:
    """Return the changes. A conditional replacement becomes certain if the template `after` the change decides it.

    CloudFormation reports an Auto Scaling group as conditionally replaced for any change of its launch template, but
    only one update policy replaces it. It does the same for resources that refer to such a resource, even if its
    identity stays.
    """
    changes = {change.logical_id: change for change in found}
    for change in found:
        if change.type == GROUP and change.action == PERHAPS_REPLACED and set(change.recreating) <= _BY_POLICY:
            policy = after.get("Resources", {}).get(change.logical_id, {}).get("UpdatePolicy") or {}
            replaced = str(policy.get("AutoScalingReplacingUpdate", {}).get("WillReplace", "")).lower() == "true"
            action = REPLACED if replaced else CHANGED
            changes[change.logical_id] = dataclasses.replace(change, action=action)
    progress = True
    while progress:
        progress = False
        for name, change in list(changes.items()):
            certain = (each not in changes or not changes[each].ends for each in change.follows)
            if change.action == PERHAPS_REPLACED and change.follows and all(certain):
                changes[name] = dataclasses.replace(change, action=CHANGED)
                progress = True
    return list(changes.values())


def _follows(details: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the resources whose identity alone decides whether the changed resource is replaced; empty if something
    else decides too.

    `details` is the list Details of the resource's entry in the change set.
    """
    found = set()
    for detail in details:
        if detail["Target"].get("RequiresRecreation", "Never") == "Never":
            continue
        source, cause = detail.get("ChangeSource", ""), str(detail.get("CausingEntity", ""))
        resource, _, attribute = cause.partition(".")
        identity = source == "ResourceReference" or (
            source == "ResourceAttribute" and attribute.endswith(("Id", "Arn", "Name"))
        )
        if not (identity and resource):
            return frozenset()
        found.add(resource)
    return frozenset(found)


def _change(
    entry: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    parameters: Mapping[str, tuple[str, str]],
) -> Change:
    """Parse one resource's entry in a change set.

    `before` and `after` are the templates. `parameters` maps each changed parameter to its values before and after.
    """
    name = entry["LogicalResourceId"]
    old, new = (template.get("Resources", {}).get(name, {}) for template in (before, after))
    details: Sequence[Mapping[str, Any]] = entry.get("Details", ())
    targets = [detail["Target"] for detail in details]
    names = [str(target.get("Name") or target["Attribute"]) for target in targets]
    action = _action(entry)
    return Change(
        action=action,
        logical_id=name,
        type=entry["ResourceType"],
        physical_id=entry.get("PhysicalResourceId") or "",
        path=_path(new or old, name),
        properties=frozenset(
            each for each, target in zip(names, targets, strict=True) if target["Attribute"] in ("Properties", "Tags")
        ),
        recreating=tuple(
            dict.fromkeys(
                each
                for each, target in zip(names, targets, strict=True)
                if target.get("RequiresRecreation", "Never") != "Never"
            )
        ),
        follows=_follows(details),
        policies=tuple(
            dict.fromkeys(
                target["Attribute"]
                for target in targets
                if target["Attribute"] not in ("Properties", "Tags", "Metadata")
            )
        ),
        differences=tuple(differences(old, new, details, parameters)) if action not in (ADDED, REMOVED) else (),
        kept=_is_kept(entry, old, action),
    )


def _action(entry: Mapping[str, Any]) -> str:
    """Return what happens to a resource, one of ACTIONS. `entry` is its entry in the change set."""
    if entry["Action"] in ("Add", "Import"):
        return ADDED
    if entry["Action"] == "Remove":
        return REMOVED
    # The outcome of `Dynamic` is unknown. It occurs only with nested stacks.
    unknown = "Conditional" if entry["Action"] == "Dynamic" else "False"
    return {"True": REPLACED, "Conditional": PERHAPS_REPLACED}.get(entry.get("Replacement", unknown), CHANGED)


def _is_kept(entry: Mapping[str, Any], old: Mapping[str, Any], action: str) -> bool:
    """Return whether the present resource is kept after its replacement or removal.

    The change set decides (PolicyAction) or, if it does not report this, the policy in the former declaration. `entry`
    is the resource's entry in the change set, `old` its declaration before the change, `action` one of ACTIONS.
    """
    policy = entry.get("PolicyAction")
    if not policy:
        attribute = "DeletionPolicy" if action == REMOVED else "UpdateReplacePolicy"
        policy = str(old.get(attribute, "Delete"))
    return "Retain" in policy


def _path(declaration: Mapping[str, Any], name: str) -> str:
    """Return the construct's path without the name of the stack and a last part such as Resource; `name` if it has
    none.
    """
    words = str(declaration.get("Metadata", {}).get("aws:cdk:path", "")).split("/")[1:]
    if words[-1:] in (["Resource"], ["Default"], ["ASG"]):
        words.pop()
    return "/".join(words) or name


def differences(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    details: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, tuple[str, str]],
) -> Iterator[Difference]:
    """Yield the values that differ between a resource's declarations `old` and `new`, then the values that refer to a
    changed parameter.

    `details` is the list Details of the resource's entry in the change set. It names the parameters that cause the
    change. `parameters` maps each changed parameter to its values before and after.
    """
    yield from compare(old.get("Properties", {}), new.get("Properties", {}))
    for cause in sorted({str(detail.get("CausingEntity")) for detail in details} & parameters.keys()):
        for path in _uses(new.get("Properties", {}), cause):
            before, after = parameters[cause]
            yield Difference(name=path, before=before, after=after)


def _uses(value: Any, parameter: str, path: str = "") -> Iterator[str]:
    """Yield the paths below `value` at which a parameter is used. Items of a list have the path of the list."""
    if value == {"Ref": parameter}:
        yield path
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _uses(each, parameter, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for each in value:
            yield from _uses(each, parameter, path)


def compare(old: Any, new: Any, path: str = "") -> Iterator[Difference]:
    """Yield the plain values that differ between two values of a template. A function, such as Ref, counts as one
    value.

    Lists of the same length are compared item by item, and the items have the path of the list. Other lists count as
    one value. `path` is the path of `old` and `new`, "" for a resource's properties.
    """
    if old == new:
        return
    if _is_object(old) and _is_object(new):
        for key in sorted({*old, *new}):
            yield from compare(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for one, other in zip(old, new, strict=True):
            yield from compare(one, other, path)
    else:
        yield Difference(name=path, before=_shown(old), after=_shown(new))


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and not any(key == "Ref" or key.startswith("Fn::") for key in value)


def _shown(value: Any) -> str:
    """Format a value of a template: the name for a Ref, JSON for other objects and lists.

    Returns "" if the value is missing, longer than _TEXT_LENGTH or more than one line, or contains a Fn:: function.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping) and set(value) == {"Ref"}:
        return str(value["Ref"])
    text = str(value) if isinstance(value, str | int | float) else json.dumps(value, separators=(",", ":"))
    return text if 0 < len(text) <= _TEXT_LENGTH and "Fn::" not in text and "\n" not in text else ""


def changed_parameters(
    stack: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[str, str]]:
    """Return the values before and after of each changed parameter, by its name. Removed parameters are left out.

    `stack` and `wanted` are the lists of parameters from DescribeStacks and DescribeChangeSet. A new parameter has the
    value "" before. For an SSM parameter, the resolved value is used.
    """

    def values(parameters: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        return {
            each["ParameterKey"]: str(each.get("ResolvedValue") or each.get("ParameterValue") or "")
            for each in parameters
        }

    before, after = values(stack), values(wanted)
    return {key: (before.get(key, ""), value) for key, value in after.items() if before.get(key, "") != value}
