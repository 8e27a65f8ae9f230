"""What a CloudFormation change set says: which resources come, change, are made anew, or go, and which values differ.

Pure: it reads the answer of DescribeChangeSet and the two templates, before and after.
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
"""What happens to a resource, the worst first."""

_TEXT_LENGTH: Final = 40
"""Longer values, such as user data, are not shown."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One value of a resource that differs."""

    name: str
    """Path of the property, such as LaunchTemplateData.InstanceType; the name alone where nobody knows more."""
    before: str
    """"" where there was none, or where it is not known or too long to be shown."""
    after: str

    def __str__(self) -> str:
        """Say it: the last word of the path, and the values as far as they are known."""
        name = self.name.rsplit(".", 1)[-1]
        if not (self.before or self.after):
            return name
        return f"{name} {self.before or 'none'} -> {self.after or 'none'}"


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
    return tuple(sorted(found, key=lambda change: ACTIONS.index(change.action)))


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
        policies=tuple(
            dict.fromkeys(
                target["Attribute"]
                for target in targets
                if target["Attribute"] not in ("Properties", "Tags", "Metadata")
            )
        ),
        differences=tuple(_differences(old, new, details, parameters)) if action not in (ADDED, REMOVED) else (),
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


def _differences(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    details: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, tuple[str, str]],
) -> Iterator[Difference]:
    """Yield what differs: in the templates' own words, then what changes because a parameter has another value."""
    yield from compare(old.get("Properties", {}), new.get("Properties", {}))
    for cause in sorted({str(detail.get("CausingEntity")) for detail in details} & parameters.keys()):
        for path in _uses(new.get("Properties", {}), cause):
            before, after = parameters[cause]
            yield Difference(name=path, before=before, after=after)


def _uses(value: Any, parameter: str, path: str = "") -> Iterator[str]:
    """Yield the paths at which a parameter's value stands."""
    if value == {"Ref": parameter}:
        yield path
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _uses(each, parameter, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for each in value:
            yield from _uses(each, parameter, path)


def compare(old: Any, new: Any, path: str = "") -> Iterator[Difference]:
    """Yield the plain values in which two values of a template differ; a function counts as one value."""
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
    """Return before and after of each parameter that changes, from DescribeStacks and DescribeChangeSet."""

    def values(parameters: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        return {
            each["ParameterKey"]: str(each.get("ResolvedValue") or each.get("ParameterValue") or "")
            for each in parameters
        }

    before, after = values(stack), values(wanted)
    return {key: (before.get(key, ""), value) for key, value in after.items() if before.get(key, "") != value}
