"""How stacks, resources and parameters are shown by the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.api.cloudformation.stacks import Resource, Stack, Target


def show_stack(stack: Stack) -> dict[str, Any]:
    """Return a stack as DescribeStacks shows it."""
    target = stack.target
    return {
        "StackId": stack.stack_id,
        "StackName": stack.name,
        "ChangeSetId": stack.change_set_id or None,
        "Description": target.template.get("Description") if target else None,
        "Parameters": show_parameters(target) if target else [],
        "CreationTime": stack.created,
        "LastUpdatedTime": stack.updated,
        "DeletionTime": stack.deleted,
        "StackStatus": stack.status,
        "StackStatusReason": stack.reason or None,
        "DisableRollback": stack.disable_rollback,
        "NotificationARNs": [],
        "Capabilities": stack.capabilities,
        "Outputs": stack.outputs,
        "RoleARN": stack.role_arn or None,
        "Tags": show_tags(target) if target else [],
        "EnableTerminationProtection": stack.termination_protection,
    }


def show_parameters(target: Target) -> list[dict[str, Any]]:
    """Return a target's parameters, secrets hidden."""
    found = []
    for parameter in target.parameters.values():
        shown = {"ParameterKey": parameter.key, "ParameterValue": "****" if parameter.secret else parameter.given}
        if parameter.stored:
            value = parameter.value
            shown["ResolvedValue"] = ",".join(value) if isinstance(value, list) else str(value)
        found.append(shown)
    return found


def show_declared(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a template's parameters as GetTemplateSummary shows them."""
    return [
        {
            "ParameterKey": key,
            "DefaultValue": str(each["Default"]) if "Default" in each else None,
            "ParameterType": each.get("Type", "String"),
            "NoEcho": str(each.get("NoEcho", False)).lower() == "true",
            "Description": each.get("Description"),
            "ParameterConstraints": {"AllowedValues": [str(value) for value in each.get("AllowedValues", [])]},
        }
        for key, each in document.get("Parameters", {}).items()
    ]


def show_tags(target: Target) -> list[dict[str, str]]:
    """Return a target's tags."""
    return [{"Key": key, "Value": value} for key, value in target.tags.items()]


def sorted_resources(stack: Stack) -> list[Resource]:
    """Return a stack's resources by name."""
    return sorted(stack.resources.values(), key=lambda each: each.logical_id)


def show_resource(stack: Stack, resource: Resource, time_key: str) -> dict[str, Any]:
    """Return a resource; AWS names the time of its last change differently here and there."""
    return {
        "StackName": stack.name,
        "StackId": stack.stack_id,
        "LogicalResourceId": resource.logical_id,
        "PhysicalResourceId": resource.physical_id,
        "ResourceType": resource.type,
        time_key: resource.changed,
        "ResourceStatus": resource.status,
        "ResourceStatusReason": resource.reason or None,
    }
