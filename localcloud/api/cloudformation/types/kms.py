"""Resource type of KMS: keys. They are kept, shown and removed; nothing here is encrypted with them."""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.resource_type import DESCRIPTION, Kind, Made, Place, Properties, truth

_GONE = ("PendingDeletion", "PendingReplicaDeletion")
_LEAST_WAIT_DAYS, _WAIT_DAYS = 7, 30


def require(place: Place, key: Any) -> None:
    """Raise ResourceError unless a key exists and can be used, as every service does that is given one."""
    state = place.aws.client("kms").describe_key(KeyId=str(key))["KeyMetadata"]["KeyState"]
    if state != "Enabled":
        raise ResourceError(f"The key {key} cannot be used: its state is {state}")


def _tags(place: Place, properties: Properties) -> list[dict[str, str]]:
    # Only CloudFormation itself may set tags that begin with `aws:`, and moto takes its calls for anybody's.
    tags = [tag for tag in place.tags(properties.get("Tags")) if not tag["Key"].startswith("aws:")]
    return [{"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in tags]


def _create_key(place: Place, properties: Properties) -> Made:
    kms = place.aws.client("kms")
    policy = {"Policy": json.dumps(properties["KeyPolicy"])} if "KeyPolicy" in properties else {}
    made = kms.create_key(Description=properties.get("Description", ""), Tags=_tags(place, properties), **policy)[
        "KeyMetadata"
    ]
    _rotate(kms, made["KeyId"], properties)
    return Made(physical_id=made["KeyId"], attributes={"Arn": made["Arn"], "KeyId": made["KeyId"]})


def _rotate(kms: Any, key_id: str, properties: Properties) -> None:
    if truth(properties.get("EnableKeyRotation", False)):
        kms.enable_key_rotation(KeyId=key_id)
    else:
        kms.disable_key_rotation(KeyId=key_id)


def _update_key(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    kms = place.aws.client("kms")
    kms.update_key_description(KeyId=made.physical_id, Description=new.get("Description", ""))
    if "KeyPolicy" in new:
        kms.put_key_policy(KeyId=made.physical_id, PolicyName="default", Policy=json.dumps(new["KeyPolicy"]))
    _rotate(kms, made.physical_id, new)
    gone = {tag["TagKey"] for tag in _tags(place, old)} - {tag["TagKey"] for tag in _tags(place, new)}
    if gone:
        kms.untag_resource(KeyId=made.physical_id, TagKeys=sorted(gone))
    kms.tag_resource(KeyId=made.physical_id, Tags=_tags(place, new))
    return made


def _delete_key(place: Place, made: Made, properties: Properties) -> None:
    """Schedule the deletion, which is all that KMS ever does: until then it can be cancelled."""
    kms = place.aws.client("kms")
    days = int(properties.get("PendingWindowInDays", _WAIT_DAYS))
    if not _LEAST_WAIT_DAYS <= days <= _WAIT_DAYS:
        raise ResourceError(f"PendingWindowInDays {days}: must be {_LEAST_WAIT_DAYS} to {_WAIT_DAYS}")
    if kms.describe_key(KeyId=made.physical_id)["KeyMetadata"]["KeyState"] not in _GONE:
        kms.schedule_key_deletion(KeyId=made.physical_id, PendingWindowInDays=days)


KINDS = (
    Kind(
        type="AWS::KMS::Key",
        carried_out=frozenset({"EnableKeyRotation", "KeyPolicy", "PendingWindowInDays", "Tags"}),
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
