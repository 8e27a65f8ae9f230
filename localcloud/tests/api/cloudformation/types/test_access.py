"""IAM roles and KMS keys of a template."""

from __future__ import annotations

import json
from typing import Any

from api.templates import Client, Stacks
from refusals.templates import resource

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


def role(**more: Any) -> dict[str, Any]:
    return {"Role": resource("IAM::Role", AssumeRolePolicyDocument=TRUST, **more)}


def test_permissions_boundary_is_kept_changed_and_removed(client: Client, stacks: Stacks) -> None:
    def boundary() -> str:
        found = client("iam").get_role(RoleName=stacks.physical(name, "Role"))["Role"]
        return str(found.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", ""))

    for policy in ("", "2"):
        client("iam").create_policy(
            PolicyName=f"{BOUNDARY.rsplit('/', 1)[1]}{policy}",
            PolicyDocument=json.dumps(
                {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
            ),
        )
    options: dict[str, Any] = {"options": {"Capabilities": ["CAPABILITY_IAM"]}}
    name = stacks.create(role(PermissionsBoundary=BOUNDARY), **options)
    assert boundary() == BOUNDARY
    stacks.update(name, role(PermissionsBoundary=f"{BOUNDARY}2"), **options)
    assert boundary() == f"{BOUNDARY}2"
    stacks.update(name, role(), **options)
    assert boundary() == ""


POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "kms:*", "Resource": "*"}
    ],
}


def key(**properties: Any) -> dict[str, Any]:
    return {"Key": resource("KMS::Key", **{"KeyPolicy": POLICY, **properties})}


def file_system(key: object) -> dict[str, Any]:
    return {"Files": resource("EFS::FileSystem", Encrypted=True, KmsKeyId=key)}


def test_key_is_created_changed_and_scheduled_for_deletion(stacks: Stacks, client: Client) -> None:
    kms = client("kms")
    name = stacks.create(key(EnableKeyRotation=True, PendingWindowInDays=9, Tags=[{"Key": "a", "Value": "1"}]))
    id = stacks.physical(name, "Key")
    assert kms.get_key_rotation_status(KeyId=id)["KeyRotationEnabled"] is True
    assert kms.list_resource_tags(KeyId=id)["Tags"] == [{"TagKey": "a", "TagValue": "1"}]
    changed = {**POLICY, "Id": "other"}
    stacks.update(name, key(KeyPolicy=changed, PendingWindowInDays=9, Tags=[{"Key": "b", "Value": "2"}]))
    assert stacks.physical(name, "Key") == id
    assert kms.get_key_rotation_status(KeyId=id)["KeyRotationEnabled"] is False
    assert "other" in kms.get_key_policy(KeyId=id, PolicyName="default")["Policy"]
    assert kms.list_resource_tags(KeyId=id)["Tags"] == [{"TagKey": "b", "TagValue": "2"}]
    stacks.delete(name)
    state = kms.describe_key(KeyId=id)["KeyMetadata"]
    assert state["KeyState"] == "PendingDeletion"


def test_file_system_requires_an_enabled_key(stacks: Stacks, client: Client) -> None:
    made = stacks.create({**key(), **file_system({"Fn::GetAtt": ["Key", "Arn"]})})
    (files,) = client("efs").describe_file_systems(FileSystemId=stacks.physical(made, "Files"))["FileSystems"]
    assert files["KmsKeyId"].endswith(stacks.physical(made, "Key"))
    unknown = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    failed = stacks.create(file_system(unknown))
    assert stacks.describe(failed)["StackStatus"] == "ROLLBACK_COMPLETE"
    kept = client("kms").create_key()["KeyMetadata"]["KeyId"]
    client("kms").schedule_key_deletion(KeyId=kept, PendingWindowInDays=7)
    failed = stacks.create(file_system(kept))
    assert any("its state is PendingDeletion" in reason for reason in stacks.reasons(failed, "Files"))
