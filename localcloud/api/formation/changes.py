"""What a change set would do, as DescribeChangeSet and `cdk diff` show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.api.formation.intrinsics import references
from localcloud.api.formation.stacks import Stack, Target
from localcloud.api.formation.supported import KINDS


def describe(stack: Stack, target: Target, wanted: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes from a stack's resources to a target, in the shape of the API.

    A change that only follows from another one (a reference to a resource that will be replaced) is found where the
    resource refers to it.
    """
    changed = _changed_parameters(stack, target)
    found = []
    touched = set(changed)
    for name, declaration in wanted.items():
        resource = stack.resources.get(name)
        if resource is None or resource.made is None:
            found.append(_change("Add", name, declaration["Type"]))
            continue
        details = _details(resource.declaration, declaration, touched)
        if details or resource.type != declaration["Type"]:
            change = _modification(name, resource.physical_id, declaration["Type"], details)
            found.append(change)
            # Only a replacement, or a new version of a launch template, changes what others see of the resource.
            if change["ResourceChange"]["Replacement"] != "False" or declaration["Type"] == "AWS::EC2::LaunchTemplate":
                touched.add(name)
    for name, resource in stack.resources.items():
        if name not in wanted:
            change = _change("Remove", name, resource.type)
            change["ResourceChange"]["PhysicalResourceId"] = resource.physical_id
            found.append(change)
    return found


def _changed_parameters(stack: Stack, target: Target) -> set[str]:
    before = stack.target.parameters if stack.target else {}
    return {
        key for key, parameter in target.parameters.items() if key not in before or before[key].value != parameter.value
    }


def _change(action: str, name: str, type_name: str) -> dict[str, Any]:
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


def _details(old: Mapping[str, Any], new: Mapping[str, Any], touched: set[str]) -> list[tuple[str, str]]:
    """Return the changed properties, each with `DirectModification` or `ResourceReference`."""
    before, after = old.get("Properties") or {}, new.get("Properties") or {}
    found = []
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            found.append((key, "DirectModification"))
        elif references(after.get(key)) & touched:
            found.append((key, "ResourceReference"))
    return found


def _modification(name: str, physical_id: str, type_name: str, details: list[tuple[str, str]]) -> dict[str, Any]:
    kind = KINDS[type_name]
    replacing = [key for key, _ in details if kind.update is None or key in kind.replaced_by]
    direct = {key for key, source in details if source == "DirectModification"}
    # Whether a referenced value really changes is known only when it has been made.
    certain = "True" if set(replacing) & direct else "Conditional"
    replacement = certain if replacing else "False"
    change = _change("Modify", name, type_name)
    change["ResourceChange"].update(
        PhysicalResourceId=physical_id,
        Replacement=replacement,
        Scope=["Properties"],
        Details=[
            {
                "Target": {
                    "Attribute": "Properties",
                    "Name": key,
                    "RequiresRecreation": ("Always" if key in replacing else "Never"),
                },
                "Evaluation": "Static" if source == "DirectModification" else "Dynamic",
                "ChangeSource": source,
            }
            for key, source in details
        ],
    )
    return change
