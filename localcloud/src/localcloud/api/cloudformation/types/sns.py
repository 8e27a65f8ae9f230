"""Resource types of SNS: topics, their policies and subscriptions."""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.handlers import create_and_update, delete_with, leave
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Context,
    Physical,
    Properties,
    ResourceType,
)

_GONE = ("NotFound", "NotFoundException")


def _create_topic(context: Context, properties: Properties) -> Physical:
    sns = context.aws.client("sns")
    name = properties.get("TopicName") or context.name()
    arn = f"arn:aws:sns:{context.region}:{context.account}:{name}"
    if any(topic["TopicArn"] == arn for topic in sns.list_topics()["Topics"]):
        raise ResourceError(f"{name} already exists")
    sns.create_topic(Name=name, Tags=context.user_tags(properties.get("Tags")))
    physical = Physical(id=arn, attributes={"TopicArn": arn, "TopicName": name})
    context.report(physical)
    _describe(sns, arn, properties)
    return physical


def _describe(sns: Any, arn: str, properties: Properties) -> None:
    display = properties.get("DisplayName", "")
    sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue=display)


def _update_topic(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    sns = context.aws.client("sns")
    _describe(sns, resource.id, new)
    before = {tag["Key"] for tag in old.get("Tags") or ()}
    after = context.user_tags(new.get("Tags"))
    gone = sorted(before - {tag["Key"] for tag in after})
    if gone:
        sns.untag_resource(ResourceArn=resource.id, TagKeys=gone)
    if after:
        sns.tag_resource(ResourceArn=resource.id, Tags=after)
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


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::SNS::Topic",
        rules={
            "TopicName": "unique",
        },
        named_by="TopicName",
        honoured=frozenset({"TopicName", "DisplayName", "Tags"}),
        inert={"KmsMasterKeyId": NOTHING_TO_ENCRYPT},
        replaced_by=frozenset({"TopicName"}),
        attributes=frozenset({"TopicArn", "TopicName"}),
        create=_create_topic,
        update=_update_topic,
        delete=delete_with("sns", "delete_topic", "TopicArn", gone=_GONE),
    ),
    ResourceType(
        name="AWS::SNS::TopicPolicy",
        rules={
            "PolicyDocument": "the actions of topics alone",
        },
        honoured=frozenset({"PolicyDocument", "Topics"}),
        attributes=frozenset({"Id"}),
        **create_and_update(_write_policy),
        delete=leave,
        replaced_by=frozenset({"Topics"}),
    ),
    # A subscription by e-mail is kept and listed; no mail leaves the machine.
    ResourceType(
        name="AWS::SNS::Subscription",
        honoured=frozenset({"TopicArn", "Protocol", "Endpoint"}),
        attributes=frozenset({"Arn"}),
        create=_subscribe,
        delete=delete_with("sns", "unsubscribe", "SubscriptionArn", gone=_GONE),
    ),
)
