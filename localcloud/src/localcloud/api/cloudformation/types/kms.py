"""Resource type of KMS: keys. They are stored, described and deleted; nothing is encrypted with them."""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.handlers import truth
from localcloud.api.cloudformation.types.resource_type import DESCRIPTION, Context, Physical, Properties, ResourceType

_GONE = ("PendingDeletion", "PendingReplicaDeletion")
_LEAST_WAIT_DAYS, _WAIT_DAYS = 7, 30


def require(context: Context, key: Any) -> None:
    """Raise ResourceError unless a key exists and can be used, as every service does that is given one."""
    state = context.aws.client("kms").describe_key(KeyId=str(key))["KeyMetadata"]["KeyState"]
    if state != "Enabled":
        raise ResourceError(f"The key {key} cannot be used: its state is {state}")


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
    gone = {tag["TagKey"] for tag in _tags(context, old)} - {tag["TagKey"] for tag in _tags(context, new)}
    if gone:
        kms.untag_resource(KeyId=resource.id, TagKeys=sorted(gone))
    kms.tag_resource(KeyId=resource.id, Tags=_tags(context, new))
    return resource


def _delete_key(context: Context, resource: Physical, properties: Properties) -> None:
    """Schedule the deletion, which is all that KMS ever does: until then it can be cancelled."""
    kms = context.aws.client("kms")
    days = int(properties.get("PendingWindowInDays", _WAIT_DAYS))
    if not _LEAST_WAIT_DAYS <= days <= _WAIT_DAYS:
        raise ResourceError(f"PendingWindowInDays {days}: must be {_LEAST_WAIT_DAYS} to {_WAIT_DAYS}")
    if kms.describe_key(KeyId=resource.id)["KeyMetadata"]["KeyState"] not in _GONE:
        kms.schedule_key_deletion(KeyId=resource.id, PendingWindowInDays=days)


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::KMS::Key",
        rules={
            "PendingWindowInDays": "7 to 30",
        },
        honoured=frozenset({"EnableKeyRotation", "KeyPolicy", "PendingWindowInDays", "Tags"}),
        inert={"Description": DESCRIPTION},
        refused={
            "KeySpec": "its keys are symmetric",
            "KeyUsage": "its keys encrypt and decrypt",
            "MultiRegion": "it has one region",
        },
        attributes=frozenset({"Arn", "KeyId"}),
        create=_create_key,
        update=_update_key,
        delete=_delete_key,
    ),
)
