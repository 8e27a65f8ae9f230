"""Resource types of IAM: roles, policies and instance profiles."""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.cloudformation.types.handlers import unless_gone
from localcloud.api.cloudformation.types.resource_type import DESCRIPTION, Context, Physical, Properties, ResourceType

_GONE = ("NoSuchEntity",)


def _create_role(context: Context, properties: Properties) -> Physical:
    iam = context.aws.client("iam")
    name = properties.get("RoleName") or context.name(64)
    described = {"Description": properties["Description"]} if properties.get("Description") else {}
    if properties.get("PermissionsBoundary"):
        described["PermissionsBoundary"] = properties["PermissionsBoundary"]
    role = iam.create_role(
        RoleName=name,
        Path=properties.get("Path", "/"),
        AssumeRolePolicyDocument=json.dumps(properties["AssumeRolePolicyDocument"]),
        Tags=context.tags(properties.get("Tags")),
        **described,
    )["Role"]
    physical = Physical(id=name, attributes={"Arn": role["Arn"], "RoleId": role["RoleId"]})
    context.report(physical)
    _grant(iam, name, properties)
    return physical


def _grant(iam: Any, name: str, properties: Properties) -> None:
    for arn in properties.get("ManagedPolicyArns") or ():
        iam.attach_role_policy(RoleName=name, PolicyArn=arn)
    for policy in properties.get("Policies") or ():
        iam.put_role_policy(
            RoleName=name, PolicyName=policy["PolicyName"], PolicyDocument=json.dumps(policy["PolicyDocument"])
        )


def _withdraw(iam: Any, name: str, properties: Properties) -> None:
    for arn in properties.get("ManagedPolicyArns") or ():
        unless_gone(_GONE, iam.detach_role_policy, RoleName=name, PolicyArn=arn)
    for policy in properties.get("Policies") or ():
        unless_gone(_GONE, iam.delete_role_policy, RoleName=name, PolicyName=policy["PolicyName"])


def _update_role(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    iam = context.aws.client("iam")
    iam.update_assume_role_policy(RoleName=resource.id, PolicyDocument=json.dumps(new["AssumeRolePolicyDocument"]))
    _withdraw(iam, resource.id, old)
    _grant(iam, resource.id, new)
    iam.tag_role(RoleName=resource.id, Tags=context.tags(new.get("Tags")))
    if new.get("PermissionsBoundary"):
        iam.put_role_permissions_boundary(RoleName=resource.id, PermissionsBoundary=new["PermissionsBoundary"])
    elif old.get("PermissionsBoundary"):
        iam.delete_role_permissions_boundary(RoleName=resource.id)
    return resource


def _delete_role(context: Context, resource: Physical, properties: Properties) -> None:
    iam = context.aws.client("iam")
    _withdraw(iam, resource.id, properties)
    unless_gone(_GONE, iam.delete_role, RoleName=resource.id)


def _put_policy(context: Context, properties: Properties) -> Physical:
    iam = context.aws.client("iam")
    physical = Physical(id=properties["PolicyName"], attributes={"Id": properties["PolicyName"]})
    for role in properties.get("Roles") or ():
        iam.put_role_policy(
            RoleName=role, PolicyName=properties["PolicyName"], PolicyDocument=json.dumps(properties["PolicyDocument"])
        )
        context.report(physical)
    return physical


def _update_policy(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    kept = set(new.get("Roles") or ()) if old["PolicyName"] == new["PolicyName"] else set()
    iam = context.aws.client("iam")
    for role in old.get("Roles") or ():
        if role not in kept:
            unless_gone(_GONE, iam.delete_role_policy, RoleName=role, PolicyName=old["PolicyName"])
    return _put_policy(context, new)


def _delete_policy(context: Context, resource: Physical, properties: Properties) -> None:
    iam = context.aws.client("iam")
    for role in properties.get("Roles") or ():
        unless_gone(_GONE, iam.delete_role_policy, RoleName=role, PolicyName=resource.id)


def _create_managed_policy(context: Context, properties: Properties) -> Physical:
    iam = context.aws.client("iam")
    arn = iam.create_policy(
        PolicyName=properties.get("ManagedPolicyName") or context.name(128),
        Path=properties.get("Path", "/"),
        PolicyDocument=json.dumps(properties["PolicyDocument"]),
    )["Policy"]["Arn"]
    physical = Physical(id=arn, attributes={"PolicyArn": arn})
    context.report(physical)
    for role in properties.get("Roles") or ():
        iam.attach_role_policy(RoleName=role, PolicyArn=arn)
    return physical


def _delete_managed_policy(context: Context, resource: Physical, properties: Properties) -> None:
    iam = context.aws.client("iam")
    for role in properties.get("Roles") or ():
        unless_gone(_GONE, iam.detach_role_policy, RoleName=role, PolicyArn=resource.id)
    unless_gone(_GONE, iam.delete_policy, PolicyArn=resource.id)


def _create_profile(context: Context, properties: Properties) -> Physical:
    iam = context.aws.client("iam")
    name = properties.get("InstanceProfileName") or context.name(128)
    arn = iam.create_instance_profile(InstanceProfileName=name, Path=properties.get("Path", "/"))["InstanceProfile"][
        "Arn"
    ]
    physical = Physical(id=name, attributes={"Arn": arn})
    context.report(physical)
    for role in properties["Roles"]:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    return physical


def _update_profile(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    iam = context.aws.client("iam")
    for role in old["Roles"]:
        unless_gone(_GONE, iam.remove_role_from_instance_profile, InstanceProfileName=resource.id, RoleName=role)
    for role in new["Roles"]:
        iam.add_role_to_instance_profile(InstanceProfileName=resource.id, RoleName=role)
    return resource


def _delete_profile(context: Context, resource: Physical, properties: Properties) -> None:
    iam = context.aws.client("iam")
    for role in properties["Roles"]:
        unless_gone(_GONE, iam.remove_role_from_instance_profile, InstanceProfileName=resource.id, RoleName=role)
    unless_gone(_GONE, iam.delete_instance_profile, InstanceProfileName=resource.id)


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::IAM::Role",
        rules={
            "RoleName": "unique",
            "AssumeRolePolicyDocument": "2,048 characters without blanks; principals by ARN exist",
            "PermissionsBoundary": "exists",
            "ManagedPolicyArns": "exist",
            "Tags": "keys that differ by more than case",
        },
        named_by="RoleName",
        honoured=frozenset(
            {
                "RoleName",
                "Path",
                "AssumeRolePolicyDocument",
                "ManagedPolicyArns",
                "Policies",
                "PermissionsBoundary",
                "Tags",
            }
        ),
        inert={"Description": DESCRIPTION, "MaxSessionDuration": "a session lasts as long as is asked for"},
        replaced_by=frozenset({"RoleName", "Path"}),
        attributes=frozenset({"Arn", "RoleId"}),
        create=_create_role,
        update=_update_role,
        delete=_delete_role,
    ),
    ResourceType(
        name="AWS::IAM::Policy",
        rules={
            "PolicyDocument": "IAM's grammar",
            "Roles": "exist",
        },
        honoured=frozenset({"PolicyName", "PolicyDocument", "Roles"}),
        attributes=frozenset({"Id"}),
        create=_put_policy,
        update=_update_policy,
        delete=_delete_policy,
    ),
    ResourceType(
        name="AWS::IAM::ManagedPolicy",
        rules={
            "PolicyDocument": "IAM's grammar",
            "Roles": "exist",
        },
        named_by="ManagedPolicyName",
        honoured=frozenset({"ManagedPolicyName", "Path", "PolicyDocument", "Roles"}),
        inert={"Description": DESCRIPTION},
        attributes=frozenset({"PolicyArn"}),
        create=_create_managed_policy,
        delete=_delete_managed_policy,
    ),
    ResourceType(
        name="AWS::IAM::InstanceProfile",
        rules={
            "Roles": "exist; one at most",
        },
        named_by="InstanceProfileName",
        honoured=frozenset({"InstanceProfileName", "Path", "Roles"}),
        replaced_by=frozenset({"InstanceProfileName", "Path"}),
        attributes=frozenset({"Arn"}),
        create=_create_profile,
        update=_update_profile,
        delete=_delete_profile,
    ),
)
