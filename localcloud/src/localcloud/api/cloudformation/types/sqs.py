"""Resource types of SQS: queues and their policies."""

from __future__ import annotations

import json

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.handlers import create_and_update, delete_with, leave, text
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Context,
    Physical,
    Properties,
    ResourceType,
)

_GONE = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
_ATTRIBUTES = ("MessageRetentionPeriod", "VisibilityTimeout", "DelaySeconds", "MaximumMessageSize")


def _create(context: Context, properties: Properties) -> Physical:
    sqs = context.aws.client("sqs")
    name = properties.get("QueueName") or context.name(80)
    if any(url.rsplit("/", 1)[-1] == name for url in sqs.list_queues(QueueNamePrefix=name).get("QueueUrls", [])):
        raise ResourceError(f"{name} already exists")
    tags = {tag["Key"]: tag["Value"] for tag in context.tags(properties.get("Tags"))}
    url = sqs.create_queue(QueueName=name, Attributes=_attributes(properties), tags=tags)["QueueUrl"]
    context.report(Physical(id=url))
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return Physical(id=url, attributes={"Arn": arn, "QueueName": name, "QueueUrl": url})


def _attributes(properties: Properties) -> dict[str, str]:
    return {key: text(properties[key]) for key in _ATTRIBUTES if key in properties}


def _update(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    sqs = context.aws.client("sqs")
    if changed := _attributes(new):
        sqs.set_queue_attributes(QueueUrl=resource.id, Attributes=changed)
    before = {tag["Key"] for tag in context.tags(old.get("Tags"))}
    after = {tag["Key"]: tag["Value"] for tag in context.tags(new.get("Tags"))}
    if gone := sorted(before - after.keys()):
        sqs.untag_queue(QueueUrl=resource.id, TagKeys=gone)
    sqs.tag_queue(QueueUrl=resource.id, Tags=after)
    return resource


def _write_policy(context: Context, name: str, properties: Properties) -> Physical:
    policy = {"Policy": json.dumps(properties["PolicyDocument"])}
    for url in properties["Queues"]:
        context.aws.client("sqs").set_queue_attributes(QueueUrl=url, Attributes=policy)
    return Physical(id=name, attributes={"Id": name})


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::SQS::Queue",
        rules={
            "QueueName": "unique; not that of a queue deleted within 60 s",
        },
        named_by="QueueName",
        honoured=frozenset({"QueueName", "Tags", *_ATTRIBUTES}),
        inert={"SqsManagedSseEnabled": NOTHING_TO_ENCRYPT, "KmsMasterKeyId": NOTHING_TO_ENCRYPT},
        replaced_by=frozenset({"QueueName"}),
        attributes=frozenset({"Arn", "QueueName", "QueueUrl"}),
        create=_create,
        update=_update,
        delete=delete_with("sqs", "delete_queue", "QueueUrl", gone=_GONE),
    ),
    # Who may send is kept and shown, and not enforced, as with all permissions here.
    ResourceType(
        name="AWS::SQS::QueuePolicy",
        rules={
            "PolicyDocument": "principals by ARN exist",
        },
        honoured=frozenset({"PolicyDocument", "Queues"}),
        attributes=frozenset({"Id"}),
        replaced_by=frozenset({"Queues"}),
        **create_and_update(_write_policy),
        delete=leave,
    ),
)
