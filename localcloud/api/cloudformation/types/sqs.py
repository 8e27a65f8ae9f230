"""Resource types of SQS: queues, and who may send to them."""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Kind,
    Made,
    Place,
    Properties,
    text,
    unless_gone,
)

_GONE = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
_ATTRIBUTES = ("MessageRetentionPeriod", "VisibilityTimeout", "DelaySeconds", "MaximumMessageSize")


def _create(place: Place, properties: Properties) -> Made:
    sqs = place.aws.client("sqs")
    name = properties.get("QueueName") or place.name(80)
    if any(url.rsplit("/", 1)[-1] == name for url in sqs.list_queues(QueueNamePrefix=name).get("QueueUrls", [])):
        raise ResourceError(f"{name} already exists")
    tags = {tag["Key"]: tag["Value"] for tag in place.tags(properties.get("Tags"))}
    url = sqs.create_queue(QueueName=name, Attributes=_attributes(properties), tags=tags)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return Made(physical_id=url, attributes={"Arn": arn, "QueueName": name, "QueueUrl": url})


def _attributes(properties: Properties) -> dict[str, str]:
    return {key: text(properties[key]) for key in _ATTRIBUTES if key in properties}


def _update(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    sqs = place.aws.client("sqs")
    if changed := _attributes(new):
        sqs.set_queue_attributes(QueueUrl=made.physical_id, Attributes=changed)
    before = {tag["Key"] for tag in place.tags(old.get("Tags"))}
    after = {tag["Key"]: tag["Value"] for tag in place.tags(new.get("Tags"))}
    if gone := sorted(before - after.keys()):
        sqs.untag_queue(QueueUrl=made.physical_id, TagKeys=gone)
    sqs.tag_queue(QueueUrl=made.physical_id, Tags=after)
    return made


def _delete(place: Place, made: Made, properties: Properties) -> None:
    del properties
    unless_gone(_GONE, place.aws.client("sqs").delete_queue, QueueUrl=made.physical_id)


def _set_policy(place: Place, queues: Any, document: str) -> None:
    for url in queues:
        place.aws.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": document})


def _create_policy(place: Place, properties: Properties) -> Made:
    _set_policy(place, properties["Queues"], json.dumps(properties["PolicyDocument"]))
    return Made(physical_id=place.name(), attributes={"Id": place.name()})


def _update_policy(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del old
    _set_policy(place, new["Queues"], json.dumps(new["PolicyDocument"]))
    return made


def _delete_policy(place: Place, made: Made, properties: Properties) -> None:
    """Leave the policy: whoever takes it away takes the queue away, or puts another in its place."""
    del place, made, properties


KINDS = (
    Kind(
        type="AWS::SQS::Queue",
        carried_out=frozenset({"QueueName", "Tags", *_ATTRIBUTES}),
        inert={"SqsManagedSseEnabled": NOTHING_TO_ENCRYPT, "KmsMasterKeyId": NOTHING_TO_ENCRYPT},
        replaced_by=frozenset({"QueueName"}),
        attributes=frozenset({"Arn", "QueueName", "QueueUrl"}),
        create=_create,
        update=_update,
        delete=_delete,
    ),
    # Who may send is kept and shown, and not enforced, as with all permissions here.
    Kind(
        type="AWS::SQS::QueuePolicy",
        carried_out=frozenset({"PolicyDocument", "Queues"}),
        attributes=frozenset({"Id"}),
        replaced_by=frozenset({"Queues"}),
        create=_create_policy,
        update=_update_policy,
        delete=_delete_policy,
    ),
)
