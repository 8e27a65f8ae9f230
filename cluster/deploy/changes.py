"""What a CloudFormation change set says: which resources come, change, are made anew, or go.

Pure: it reads the answer of DescribeChangeSet and the two templates, before and after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cluster.deploy.differences import Difference, differences

ADDED: Final = "added"
CHANGED: Final = "changed"
REPLACED: Final = "REPLACED"
PERHAPS_REPLACED: Final = "perhaps REPLACED"
REMOVED: Final = "REMOVED"
ACTIONS: Final = (REMOVED, REPLACED, PERHAPS_REPLACED, CHANGED, ADDED)
"""What happens to a resource, the worst first."""

GROUP: Final = "AWS::AutoScaling::AutoScalingGroup"
# Properties for which only an update policy makes a group anew (`conditionalCreateOnlyProperties` of its schema).
_BY_POLICY: Final = frozenset(
    {"LaunchConfigurationName", "LaunchTemplate", "MixedInstancesPolicy", "VPCZoneIdentifier"}
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """What happens to one resource."""

    action: str
    """One of ACTIONS."""
    logical_id: str
    type: str
    physical_id: str
    """"" for what is to be added."""
    path: str
    """Where the CDK's constructs made it, such as Workers/Template; the logical id where no template tells."""
    properties: frozenset[str]
    """Properties of the first level that change, or may change because of another change; Tags among them."""
    recreating: tuple[str, ...]
    """Those of them for which it is made anew."""
    follows: frozenset[str]
    """Resources whose identity alone decides whether it is made anew; empty where something else decides too."""
    policies: tuple[str, ...]
    """What else of its declaration changes, such as DeletionPolicy."""
    differences: tuple[Difference, ...]
    kept: bool
    """Whether the resource of today outlives its replacement or removal."""

    @property
    def ends(self) -> bool:
        """Tell whether the resource of today goes, or may go, out of use."""
        return self.action in (REMOVED, REPLACED, PERHAPS_REPLACED)


def parse(
    description: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    parameters: Mapping[str, tuple[str, str]],
) -> tuple[Change, ...]:
    """Parse DescribeChangeSet's answer, the worst first.

    `before` and `after` are the templates, `parameters` the values of those parameters that change.
    """
    found = [
        _change(each["ResourceChange"], before, after, parameters)
        for each in description.get("Changes", ())
        if each.get("Type", "Resource") == "Resource"
    ]
    return tuple(sorted(_settled(found, after), key=lambda change: ACTIONS.index(change.action)))


def _settled(found: Sequence[Change], after: Mapping[str, Any]) -> list[Change]:
    """Decide what CloudFormation leaves open although the template tells it.

    It calls an Auto Scaling group conditionally replaced for any change of its launch template, though only one update
    policy does that; and whatever refers to such a resource too, though the identity of what stays never changes.
    """
    changes = {change.logical_id: change for change in found}
    for change in found:
        if change.type == GROUP and change.action == PERHAPS_REPLACED and set(change.recreating) <= _BY_POLICY:
            policy = after.get("Resources", {}).get(change.logical_id, {}).get("UpdatePolicy") or {}
            replaced = str(policy.get("AutoScalingReplacingUpdate", {}).get("WillReplace", "")).lower() == "true"
            action = REPLACED if replaced else CHANGED
            changes[change.logical_id] = dataclasses.replace(change, action=action)
    settled = True
    while settled:
        settled = False
        for name, change in list(changes.items()):
            certain = (each not in changes or not changes[each].ends for each in change.follows)
            if change.action == PERHAPS_REPLACED and change.follows and all(certain):
                changes[name] = dataclasses.replace(change, action=CHANGED)
                settled = True
    return list(changes.values())


def _follows(details: Sequence[Mapping[str, Any]]) -> frozenset[str]:
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
    told: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    parameters: Mapping[str, tuple[str, str]],
) -> Change:
    name = told["LogicalResourceId"]
    old, new = (template.get("Resources", {}).get(name, {}) for template in (before, after))
    details: Sequence[Mapping[str, Any]] = told.get("Details", ())
    targets = [detail["Target"] for detail in details]
    names = [str(target.get("Name") or target["Attribute"]) for target in targets]
    action = _action(told)
    return Change(
        action=action,
        logical_id=name,
        type=told["ResourceType"],
        physical_id=told.get("PhysicalResourceId") or "",
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
        kept=_is_kept(told, old, action),
    )


def _action(told: Mapping[str, Any]) -> str:
    if told["Action"] in ("Add", "Import"):
        return ADDED
    if told["Action"] == "Remove":
        return REMOVED
    # Of `Dynamic`, which is said of nested stacks alone, nobody knows the outcome.
    unknown = "Conditional" if told["Action"] == "Dynamic" else "False"
    return {"True": REPLACED, "Conditional": PERHAPS_REPLACED}.get(told.get("Replacement", unknown), CHANGED)


def _is_kept(told: Mapping[str, Any], old: Mapping[str, Any], action: str) -> bool:
    policy = told.get("PolicyAction")
    if not policy:
        attribute = "DeletionPolicy" if action == REMOVED else "UpdateReplacePolicy"
        policy = str(old.get(attribute, "Delete"))
    return "Retain" in policy


def _path(declaration: Mapping[str, Any], name: str) -> str:
    """Return the construct's path without the stack's name and without the word that stands for the resource itself."""
    words = str(declaration.get("Metadata", {}).get("aws:cdk:path", "")).split("/")[1:]
    if words[-1:] in (["Resource"], ["Default"], ["ASG"]):
        words.pop()
    return "/".join(words) or name
