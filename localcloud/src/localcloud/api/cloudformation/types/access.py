"""Resource types of access control: IAM's roles, policies and instance profiles, and KMS keys."""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.resource_type import (
    DESCRIPTION,
    Context,
    Physical,
    Properties,
    ResourceType,
    names,
    truth,
    unless_gone,
)

_GONE = ("NoSuchEntity",)


def _create_role(context: Context, properties: Properties) -> Physical:
    iam = context.aws.client("iam")
    name = properties.get("RoleName") or context.name(64)
    described = {key: properties[key] for key in ("Description", "PermissionsBoundary") if properties.get(key)}
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
    """Attach a role's managed policies and write its inline policies."""
    for arn in properties.get("ManagedPolicyArns") or ():
        iam.attach_role_policy(RoleName=name, PolicyArn=arn)
    for policy in properties.get("Policies") or ():
        iam.put_role_policy(
            RoleName=name, PolicyName=policy["PolicyName"], PolicyDocument=json.dumps(policy["PolicyDocument"])
        )


def _withdraw(iam: Any, name: str, properties: Properties) -> None:
    """Detach a role's managed policies and delete its inline policies. Missing ones are no error."""
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


_SCHEDULED = ("PendingDeletion", "PendingReplicaDeletion")
_MIN_WAIT_DAYS, _WAIT_DAYS = 7, 30


def require_enabled_key(context: Context, key: Any) -> None:
    """Raise ResourceError if a KMS key is not enabled, or KMS's error (ClientError) if it is unknown.

    `key` is its id, ARN or alias.
    """
    state = context.aws.client("kms").describe_key(KeyId=str(key))["KeyMetadata"]["KeyState"]
    if state != "Enabled":
        raise ResourceError(f"The key {key} cannot be used: its state is {state}, but must be Enabled")


def _tags(context: Context, properties: Properties) -> list[dict[str, str]]:
    return [{"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in context.user_tags(properties.get("Tags"))]


def _create_key(context: Context, properties: Properties) -> Physical:
    kms = context.aws.client("kms")
    policy = {"Policy": json.dumps(properties["KeyPolicy"])} if "KeyPolicy" in properties else {}
    created = kms.create_key(Description=properties.get("Description", ""), Tags=_tags(context, properties), **policy)[
        "KeyMetadata"
    ]
    physical = Physical(id=created["KeyId"], attributes={"Arn": created["Arn"], "KeyId": created["KeyId"]})
    context.report(physical)
    _rotate(kms, physical.id, properties)
    return physical


def _rotate(kms: Any, key_id: str, properties: Properties) -> None:
    """Enable or disable the rotation of a key, as its property EnableKeyRotation requires."""
    if truth(properties.get("EnableKeyRotation", False)):
        kms.enable_key_rotation(KeyId=key_id)
    else:
        kms.disable_key_rotation(KeyId=key_id)


def _update_key(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    kms = context.aws.client("kms")
    kms.update_key_description(KeyId=resource.id, Description=new.get("Description", ""))
    if "KeyPolicy" in new:
        kms.put_key_policy(KeyId=resource.id, PolicyName="default", Policy=json.dumps(new["KeyPolicy"]))
    _rotate(kms, resource.id, new)
    if gone := context.lost_tags(old, new):
        kms.untag_resource(KeyId=resource.id, TagKeys=gone)
    kms.tag_resource(KeyId=resource.id, Tags=_tags(context, new))
    return resource


def _delete_key(context: Context, resource: Physical, properties: Properties) -> None:
    """Schedule the deletion of a key after PendingWindowInDays. As in KMS, the deletion can be cancelled until then.

    A deletion that is already scheduled is not changed. Raises ResourceError if PendingWindowInDays is out of range.
    """
    kms = context.aws.client("kms")
    days = int(properties.get("PendingWindowInDays", _WAIT_DAYS))
    if not _MIN_WAIT_DAYS <= days <= _WAIT_DAYS:
        raise ResourceError(f"PendingWindowInDays {days}: must be {_MIN_WAIT_DAYS} to {_WAIT_DAYS}")
    if kms.describe_key(KeyId=resource.id)["KeyMetadata"]["KeyState"] not in _SCHEDULED:
        kms.schedule_key_deletion(KeyId=resource.id, PendingWindowInDays=days)


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::IAM::Role",
        named_by="RoleName",
        honoured=names("RoleName Path AssumeRolePolicyDocument ManagedPolicyArns Policies PermissionsBoundary Tags"),
        inert={"Description": DESCRIPTION, "MaxSessionDuration": "a session lasts as long as requested"},
        replaced_by=names("RoleName Path"),
        attributes=names("Arn RoleId"),
        create=_create_role,
        update=_update_role,
        delete=_delete_role,
    ),
    ResourceType(
        name="AWS::IAM::Policy",
        honoured=names("PolicyName PolicyDocument Roles"),
        attributes=names("Id"),
        create=_put_policy,
        update=_update_policy,
        delete=_delete_policy,
    ),
    ResourceType(
        name="AWS::IAM::ManagedPolicy",
        named_by="ManagedPolicyName",
        honoured=names("ManagedPolicyName Path PolicyDocument Roles"),
        inert={"Description": DESCRIPTION},
        attributes=names("PolicyArn"),
        create=_create_managed_policy,
        delete=_delete_managed_policy,
    ),
    ResourceType(
        name="AWS::IAM::InstanceProfile",
        named_by="InstanceProfileName",
        honoured=names("InstanceProfileName Path Roles"),
        replaced_by=names("InstanceProfileName Path"),
        attributes=names("Arn"),
        create=_create_profile,
        update=_update_profile,
        delete=_delete_profile,
    ),
    ResourceType(
        name="AWS::KMS::Key",
        honoured=names("EnableKeyRotation KeyPolicy PendingWindowInDays Tags"),
        inert={"Description": DESCRIPTION},
        refused={
            "KeySpec": "its keys are symmetric",
            "KeyUsage": "its keys encrypt and decrypt",
            "MultiRegion": "it has one region",
        },
        attributes=names("Arn KeyId"),
        create=_create_key,
        update=_update_key,
        delete=_delete_key,
    ),
)
