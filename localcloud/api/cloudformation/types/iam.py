"""Resource types of access: roles, policies and instance profiles. They are kept and shown, not enforced."""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.cloudformation.types.resource_type import DESCRIPTION, Kind, Made, Place, Properties, unless_gone

_GONE = ("NoSuchEntity",)
_NOT_ENFORCED = "who may call what is not enforced here"


def _create_role(place: Place, properties: Properties) -> Made:
    iam = place.aws.client("iam")
    name = properties.get("RoleName") or place.name(64)
    described = {"Description": properties["Description"]} if properties.get("Description") else {}
    if properties.get("PermissionsBoundary"):
        described["PermissionsBoundary"] = properties["PermissionsBoundary"]
    role = iam.create_role(
        RoleName=name,
        Path=properties.get("Path", "/"),
        AssumeRolePolicyDocument=json.dumps(properties["AssumeRolePolicyDocument"]),
        Tags=place.tags(properties.get("Tags")),
        **described,
    )["Role"]
    _grant(iam, name, properties)
    return Made(physical_id=name, attributes={"Arn": role["Arn"], "RoleId": role["RoleId"]})


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


def _update_role(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    iam = place.aws.client("iam")
    iam.update_assume_role_policy(RoleName=made.physical_id, PolicyDocument=json.dumps(new["AssumeRolePolicyDocument"]))
    _withdraw(iam, made.physical_id, old)
    _grant(iam, made.physical_id, new)
    iam.tag_role(RoleName=made.physical_id, Tags=place.tags(new.get("Tags")))
    if new.get("PermissionsBoundary"):
        iam.put_role_permissions_boundary(RoleName=made.physical_id, PermissionsBoundary=new["PermissionsBoundary"])
    elif old.get("PermissionsBoundary"):
        iam.delete_role_permissions_boundary(RoleName=made.physical_id)
    return made


def _delete_role(place: Place, made: Made, properties: Properties) -> None:
    iam = place.aws.client("iam")
    _withdraw(iam, made.physical_id, properties)
    unless_gone(_GONE, iam.delete_role, RoleName=made.physical_id)


def _put_policy(place: Place, properties: Properties) -> Made:
    iam = place.aws.client("iam")
    for role in properties.get("Roles") or ():
        iam.put_role_policy(
            RoleName=role,
            PolicyName=properties["PolicyName"],
            PolicyDocument=json.dumps(properties["PolicyDocument"]),
        )
    return Made(physical_id=properties["PolicyName"], attributes={"Id": properties["PolicyName"]})


def _update_policy(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    kept = set(new.get("Roles") or ()) if old["PolicyName"] == new["PolicyName"] else set()
    iam = place.aws.client("iam")
    for role in old.get("Roles") or ():
        if role not in kept:
            unless_gone(_GONE, iam.delete_role_policy, RoleName=role, PolicyName=old["PolicyName"])
    del made
    return _put_policy(place, new)


def _delete_policy(place: Place, made: Made, properties: Properties) -> None:
    iam = place.aws.client("iam")
    for role in properties.get("Roles") or ():
        unless_gone(_GONE, iam.delete_role_policy, RoleName=role, PolicyName=made.physical_id)


def _create_managed_policy(place: Place, properties: Properties) -> Made:
    iam = place.aws.client("iam")
    arn = iam.create_policy(
        PolicyName=properties.get("ManagedPolicyName") or place.name(128),
        Path=properties.get("Path", "/"),
        PolicyDocument=json.dumps(properties["PolicyDocument"]),
    )["Policy"]["Arn"]
    for role in properties.get("Roles") or ():
        iam.attach_role_policy(RoleName=role, PolicyArn=arn)
    return Made(physical_id=arn, attributes={"PolicyArn": arn})


def _delete_managed_policy(place: Place, made: Made, properties: Properties) -> None:
    iam = place.aws.client("iam")
    for role in properties.get("Roles") or ():
        unless_gone(_GONE, iam.detach_role_policy, RoleName=role, PolicyArn=made.physical_id)
    unless_gone(_GONE, iam.delete_policy, PolicyArn=made.physical_id)


def _create_profile(place: Place, properties: Properties) -> Made:
    iam = place.aws.client("iam")
    name = properties.get("InstanceProfileName") or place.name(128)
    arn = iam.create_instance_profile(InstanceProfileName=name, Path=properties.get("Path", "/"))["InstanceProfile"][
        "Arn"
    ]
    for role in properties["Roles"]:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    return Made(physical_id=name, attributes={"Arn": arn})


def _update_profile(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    iam = place.aws.client("iam")
    for role in old["Roles"]:
        unless_gone(_GONE, iam.remove_role_from_instance_profile, InstanceProfileName=made.physical_id, RoleName=role)
    for role in new["Roles"]:
        iam.add_role_to_instance_profile(InstanceProfileName=made.physical_id, RoleName=role)
    return made


def _delete_profile(place: Place, made: Made, properties: Properties) -> None:
    iam = place.aws.client("iam")
    for role in properties["Roles"]:
        unless_gone(_GONE, iam.remove_role_from_instance_profile, InstanceProfileName=made.physical_id, RoleName=role)
    unless_gone(_GONE, iam.delete_instance_profile, InstanceProfileName=made.physical_id)


KINDS = (
    Kind(
        type="AWS::IAM::Role",
        carried_out=frozenset(
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
        inert={
            "Description": DESCRIPTION,
            "MaxSessionDuration": _NOT_ENFORCED,
        },
        replaced_by=frozenset({"RoleName", "Path"}),
        attributes=frozenset({"Arn", "RoleId"}),
        create=_create_role,
        update=_update_role,
        delete=_delete_role,
    ),
    Kind(
        type="AWS::IAM::Policy",
        carried_out=frozenset({"PolicyName", "PolicyDocument", "Roles"}),
        attributes=frozenset({"Id"}),
        create=_put_policy,
        update=_update_policy,
        delete=_delete_policy,
    ),
    Kind(
        type="AWS::IAM::ManagedPolicy",
        carried_out=frozenset({"ManagedPolicyName", "Path", "PolicyDocument", "Roles"}),
        inert={"Description": DESCRIPTION},
        attributes=frozenset({"PolicyArn"}),
        create=_create_managed_policy,
        delete=_delete_managed_policy,
    ),
    Kind(
        type="AWS::IAM::InstanceProfile",
        carried_out=frozenset({"InstanceProfileName", "Path", "Roles"}),
        replaced_by=frozenset({"InstanceProfileName", "Path"}),
        attributes=frozenset({"Arn"}),
        create=_create_profile,
        update=_update_profile,
        delete=_delete_profile,
    ),
)
