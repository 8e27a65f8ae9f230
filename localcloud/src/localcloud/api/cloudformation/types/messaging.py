"""Resource types of messages: topics, queues and budgets.

Budgets are stored and shown. Nothing costs money in the embedded cloud, so a budget is never spent. To rehearse an
alert, publish to its topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Context,
    Physical,
    Properties,
    ResourceType,
    as_mapping,
    create_and_update,
    delete_with,
    leave,
    names,
    text,
    unless_gone,
)
from localcloud.snapshot import ACCOUNT, REGION

_NO_TOPIC = ("NotFound", "NotFoundException")


def _create_topic(context: Context, properties: Properties) -> Physical:
    sns = context.aws.client("sns")
    name = properties.get("TopicName") or context.name()
    arn = f"arn:aws:sns:{REGION}:{ACCOUNT}:{name}"
    if any(topic["TopicArn"] == arn for topic in sns.list_topics()["Topics"]):
        raise ResourceError(f"{name} already exists")
    sns.create_topic(Name=name, Tags=context.user_tags(properties.get("Tags")))
    physical = Physical(id=arn, attributes={"TopicArn": arn, "TopicName": name})
    context.report(physical)
    _describe(sns, arn, properties)
    return physical


def _describe(sns: Any, arn: str, properties: Properties) -> None:
    """Set a topic's display name, or remove it if the template has none."""
    display = properties.get("DisplayName", "")
    sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue=display)


def _update_topic(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    sns = context.aws.client("sns")
    _describe(sns, resource.id, new)
    if gone := context.lost_tags(old, new):
        sns.untag_resource(ResourceArn=resource.id, TagKeys=gone)
    if tags := context.user_tags(new.get("Tags")):
        sns.tag_resource(ResourceArn=resource.id, Tags=tags)
    return resource


def _write_policy(context: Context, name: str, properties: Properties) -> Physical:
    document = json.dumps(properties["PolicyDocument"])
    for arn in properties["Topics"]:
        context.aws.client("sns").set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue=document)
    return Physical(id=name, attributes={"Id": name})


def _subscribe(context: Context, properties: Properties) -> Physical:
    arn = context.aws.client("sns").subscribe(
        TopicArn=properties["TopicArn"],
        Protocol=properties["Protocol"],
        Endpoint=properties["Endpoint"],
        ReturnSubscriptionArn=True,
    )["SubscriptionArn"]
    return Physical(id=arn, attributes={"Arn": arn})


_NO_QUEUE = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
_ATTRIBUTES = ("MessageRetentionPeriod", "VisibilityTimeout", "DelaySeconds", "MaximumMessageSize")


def _create_queue(context: Context, properties: Properties) -> Physical:
    sqs = context.aws.client("sqs")
    name = properties.get("QueueName") or context.name(80)
    if any(url.rsplit("/", 1)[-1] == name for url in sqs.list_queues(QueueNamePrefix=name).get("QueueUrls", [])):
        raise ResourceError(f"{name} already exists")
    tags = as_mapping(context.tags(properties.get("Tags")))
    url = sqs.create_queue(QueueName=name, Attributes=_attributes(properties), tags=tags)["QueueUrl"]
    context.report(Physical(id=url))
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return Physical(id=url, attributes={"Arn": arn, "QueueName": name, "QueueUrl": url})


def _attributes(properties: Properties) -> dict[str, str]:
    return {key: text(properties[key]) for key in _ATTRIBUTES if key in properties}


def _update_queue(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    sqs = context.aws.client("sqs")
    if changed := _attributes(new):
        sqs.set_queue_attributes(QueueUrl=resource.id, Attributes=changed)
    if gone := context.lost_tags(old, new):
        sqs.untag_queue(QueueUrl=resource.id, TagKeys=gone)
    sqs.tag_queue(QueueUrl=resource.id, Tags=as_mapping(context.tags(new.get("Tags"))))
    return resource


def _write_queue_policy(context: Context, name: str, properties: Properties) -> Physical:
    policy = {"Policy": json.dumps(properties["PolicyDocument"])}
    for url in properties["Queues"]:
        context.aws.client("sqs").set_queue_attributes(QueueUrl=url, Attributes=policy)
    return Physical(id=name, attributes={"Id": name})


_NOTHING_IS_SPENT = "nothing costs anything here, so it is never reached; it is shown as it was given"


def _create_budget(context: Context, properties: Properties) -> Physical:
    given: Mapping[str, Any] = properties["Budget"]
    name = given.get("BudgetName") or context.name(100)
    limit = {key: str(value) for key, value in given["BudgetLimit"].items()}
    context.aws.client("budgets").create_budget(
        AccountId=ACCOUNT,
        Budget={**given, "BudgetName": name, "BudgetLimit": limit},
        NotificationsWithSubscribers=[
            {
                "Notification": {**each["Notification"], "Threshold": float(each["Notification"]["Threshold"])},
                "Subscribers": list(each["Subscribers"]),
            }
            for each in properties.get("NotificationsWithSubscribers") or ()
        ],
    )
    return Physical(id=name)


def _update_budget(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Update a budget by recreating it with the same name. No spending is recorded that could be lost.

    On AWS this is an update in place. On AWS too, changed notifications or subscribers replace the budget.
    """
    _delete_budget(context, resource, old)
    return _create_budget(context, {**new, "Budget": {**new["Budget"], "BudgetName": resource.id}})


def _delete_budget(context: Context, resource: Physical, properties: Properties) -> None:
    unless_gone(
        ("NotFoundException",),
        context.aws.client("budgets").delete_budget,
        AccountId=ACCOUNT,
        BudgetName=resource.id,
    )


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::SNS::Topic",
        named_by="TopicName",
        honoured=names("TopicName DisplayName Tags"),
        inert={"KmsMasterKeyId": NOTHING_TO_ENCRYPT},
        replaced_by=names("TopicName"),
        attributes=names("TopicArn TopicName"),
        create=_create_topic,
        update=_update_topic,
        delete=delete_with("sns", "delete_topic", "TopicArn", gone=_NO_TOPIC),
    ),
    ResourceType(
        name="AWS::SNS::TopicPolicy",
        honoured=names("PolicyDocument Topics"),
        attributes=names("Id"),
        **create_and_update(_write_policy),
        delete=leave,
        replaced_by=names("Topics"),
    ),
    # E-mail subscriptions are stored and listed, but no mail is sent.
    ResourceType(
        name="AWS::SNS::Subscription",
        honoured=names("TopicArn Protocol Endpoint"),
        attributes=names("Arn"),
        create=_subscribe,
        delete=delete_with("sns", "unsubscribe", "SubscriptionArn", gone=_NO_TOPIC),
    ),
    ResourceType(
        name="AWS::SQS::Queue",
        named_by="QueueName",
        honoured=frozenset({"QueueName", "Tags", *_ATTRIBUTES}),
        inert={"SqsManagedSseEnabled": NOTHING_TO_ENCRYPT, "KmsMasterKeyId": NOTHING_TO_ENCRYPT},
        replaced_by=names("QueueName"),
        attributes=names("Arn QueueName QueueUrl"),
        create=_create_queue,
        update=_update_queue,
        delete=delete_with("sqs", "delete_queue", "QueueUrl", gone=_NO_QUEUE),
    ),
    # The policy is enforced for calls of SQS. Deliveries from topics are not checked.
    ResourceType(
        name="AWS::SQS::QueuePolicy",
        honoured=names("PolicyDocument Queues"),
        attributes=names("Id"),
        replaced_by=names("Queues"),
        **create_and_update(_write_queue_policy),
        delete=leave,
    ),
    ResourceType(
        name="AWS::Budgets::Budget",
        honoured=names("Budget.BudgetName"),
        inert={
            "Budget.BudgetLimit": _NOTHING_IS_SPENT,
            "Budget.BudgetType": _NOTHING_IS_SPENT,
            "Budget.TimeUnit": _NOTHING_IS_SPENT,
            "Budget.CostFilters": _NOTHING_IS_SPENT,
            "NotificationsWithSubscribers": _NOTHING_IS_SPENT,
            "ResourceTags": "budgets are found by name here",
        },
        replaced_by=names("NotificationsWithSubscribers"),
        create=_create_budget,
        update=_update_budget,
        delete=_delete_budget,
    ),
)
