"""Topics, their policies and their subscriptions, as the API shows them."""

from __future__ import annotations

import json
from typing import Any

from api.templates import Client, Stacks

STATEMENT = {
    "Effect": "Allow",
    "Principal": {"Service": "cloudwatch.amazonaws.com"},
    "Action": "sns:Publish",
    "Resource": {"Ref": "Topic"},
}


def resources(*, email: str = "ops@example.com", **topic: Any) -> dict[str, Any]:
    return {
        "Topic": {"Type": "AWS::SNS::Topic", "Properties": topic},
        "Policy": {
            "Type": "AWS::SNS::TopicPolicy",
            "Properties": {
                "Topics": [{"Ref": "Topic"}],
                "PolicyDocument": {"Version": "2012-10-17", "Statement": [STATEMENT]},
            },
        },
        "Mail": {
            "Type": "AWS::SNS::Subscription",
            "Properties": {"TopicArn": {"Ref": "Topic"}, "Protocol": "email", "Endpoint": email},
        },
    }


def subscribers(client: Client, arn: str) -> list[str]:
    found = client("sns").list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]
    return [each["Endpoint"] for each in found]


def topics(client: Client) -> set[str]:
    return {each["TopicArn"] for each in client("sns").list_topics()["Topics"]}


def test_a_topic_has_its_policy_and_its_subscriber_and_goes_with_its_stack(client: Client, stacks: Stacks) -> None:
    stack = stacks.create(resources(DisplayName="cluster", Tags=[{"Key": "team", "Value": "vision"}]))
    arn = stacks.physical(stack, "Topic")
    attributes = client("sns").get_topic_attributes(TopicArn=arn)["Attributes"]
    assert attributes["DisplayName"] == "cluster"
    (statement,) = json.loads(attributes["Policy"])["Statement"]
    assert (statement["Principal"], statement["Resource"]) == ({"Service": "cloudwatch.amazonaws.com"}, arn)
    assert client("sns").list_tags_for_resource(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "vision"}]
    assert subscribers(client, arn) == ["ops@example.com"]
    stacks.delete(stack)
    assert arn not in topics(client)


def test_another_address_replaces_the_subscription_and_leaves_the_topic(client: Client, stacks: Stacks) -> None:
    stack = stacks.create(resources())
    arn = stacks.physical(stack, "Topic")
    stacks.update(stack, resources(email="night@example.com", DisplayName="later"))
    assert stacks.physical(stack, "Topic") == arn
    assert subscribers(client, arn) == ["night@example.com"]
    assert client("sns").get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] == "later"


def test_a_topic_of_a_taken_name_fails_its_stack(client: Client, stacks: Stacks) -> None:
    arn = client("sns").create_topic(Name="taken")["TopicArn"]
    assert stacks.describe(stacks.create(resources(TopicName="taken")))["StackStatus"] == "ROLLBACK_COMPLETE"
    assert arn in topics(client)
