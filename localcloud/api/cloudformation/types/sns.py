"""Resource types of SNS: topics, who may publish to them, and who is told."""

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
    unless_gone,
)

_GONE = ("NotFound", "NotFoundException")


def _create_topic(place: Place, properties: Properties) -> Made:
    sns = place.aws.client("sns")
    name = properties.get("TopicName") or place.name()
    arn = f"arn:aws:sns:{place.region}:{place.account}:{name}"
    if any(topic["TopicArn"] == arn for topic in sns.list_topics()["Topics"]):
        raise ResourceError(f"{name} already exists")
    tags = [tag for tag in place.tags(properties.get("Tags")) if not tag["Key"].startswith("aws:")]
    sns.create_topic(Name=name, Tags=tags)
    _describe(sns, arn, properties)
    return Made(physical_id=arn, attributes={"TopicArn": arn, "TopicName": name})


def _describe(sns: Any, arn: str, properties: Properties) -> None:
    display = properties.get("DisplayName", "")
    sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue=display)


def _update_topic(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    sns = place.aws.client("sns")
    _describe(sns, made.physical_id, new)
    before = {tag["Key"] for tag in old.get("Tags") or ()}
    after = [tag for tag in place.tags(new.get("Tags")) if not tag["Key"].startswith("aws:")]
    gone = sorted(before - {tag["Key"] for tag in after})
    if gone:
        sns.untag_resource(ResourceArn=made.physical_id, TagKeys=gone)
    if after:
        sns.tag_resource(ResourceArn=made.physical_id, Tags=after)
    return made


def _delete_topic(place: Place, made: Made, properties: Properties) -> None:
    del properties
    unless_gone(_GONE, place.aws.client("sns").delete_topic, TopicArn=made.physical_id)


def _set_policy(place: Place, properties: Properties) -> Made:
    document = json.dumps(properties["PolicyDocument"])
    for arn in properties["Topics"]:
        place.aws.client("sns").set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue=document)
    return Made(physical_id=place.name(), attributes={"Id": place.name()})


def _update_policy(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del old
    return Made(physical_id=made.physical_id, attributes=_set_policy(place, new).attributes)


def _leave_policy(place: Place, made: Made, properties: Properties) -> None:
    """Leave the policy: whoever takes it away takes the topic away, or puts another in its place."""
    del place, made, properties


def _subscribe(place: Place, properties: Properties) -> Made:
    arn = place.aws.client("sns").subscribe(
        TopicArn=properties["TopicArn"],
        Protocol=properties["Protocol"],
        Endpoint=properties["Endpoint"],
        ReturnSubscriptionArn=True,
    )["SubscriptionArn"]
    return Made(physical_id=arn, attributes={"Arn": arn})


def _unsubscribe(place: Place, made: Made, properties: Properties) -> None:
    del properties
    unless_gone(_GONE, place.aws.client("sns").unsubscribe, SubscriptionArn=made.physical_id)


KINDS = (
    Kind(
        type="AWS::SNS::Topic",
        carried_out=frozenset({"TopicName", "DisplayName", "Tags"}),
        inert={"KmsMasterKeyId": NOTHING_TO_ENCRYPT},
        replaced_by=frozenset({"TopicName"}),
        attributes=frozenset({"TopicArn", "TopicName"}),
        create=_create_topic,
        update=_update_topic,
        delete=_delete_topic,
    ),
    Kind(
        type="AWS::SNS::TopicPolicy",
        carried_out=frozenset({"PolicyDocument", "Topics"}),
        attributes=frozenset({"Id"}),
        create=_set_policy,
        update=_update_policy,
        delete=_leave_policy,
        replaced_by=frozenset({"Topics"}),
    ),
    # A subscription by e-mail is kept and listed; no mail leaves the machine.
    Kind(
        type="AWS::SNS::Subscription",
        carried_out=frozenset({"TopicArn", "Protocol", "Endpoint"}),
        attributes=frozenset({"Arn"}),
        create=_subscribe,
        delete=_unsubscribe,
    ),
)
