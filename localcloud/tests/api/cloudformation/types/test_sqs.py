"""Queues of a template, filled by the topics that it subscribes them to."""

from __future__ import annotations

from typing import Any

from api.templates import Client, Stacks

DOCUMENT: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}],
}
RESOURCES: dict[str, Any] = {
    "Topic": {"Type": "AWS::SNS::Topic"},
    "Queue": {
        "Type": "AWS::SQS::Queue",
        "Properties": {"MessageRetentionPeriod": 1209600, "Tags": [{"Key": "team", "Value": "a"}]},
    },
    "Policy": {
        "Type": "AWS::SQS::QueuePolicy",
        "Properties": {"PolicyDocument": DOCUMENT, "Queues": [{"Ref": "Queue"}]},
    },
    "Way": {
        "Type": "AWS::SNS::Subscription",
        "Properties": {
            "Protocol": "sqs",
            "TopicArn": {"Ref": "Topic"},
            "Endpoint": {"Fn::GetAtt": ["Queue", "Arn"]},
        },
    },
}


def test_what_a_topic_is_told_waits_in_the_queue_until_it_is_purged(client: Client, stacks: Stacks) -> None:
    name = stacks.create(RESOURCES)
    url = stacks.physical(name, "Queue")
    client("sns").publish(TopicArn=stacks.physical(name, "Topic"), Message="spent")
    asked = {"QueueUrl": url, "AttributeNames": ["All"]}
    found = client("sqs").get_queue_attributes(**asked)["Attributes"]
    assert (found["ApproximateNumberOfMessages"], found["MessageRetentionPeriod"]) == ("1", "1209600")
    assert '"Statement"' in found["Policy"]
    client("sqs").purge_queue(QueueUrl=url)
    assert client("sqs").get_queue_attributes(**asked)["Attributes"]["ApproximateNumberOfMessages"] == "0"


def test_a_queue_changes_in_place_and_goes_with_its_stack(client: Client, stacks: Stacks) -> None:
    name = stacks.create(RESOURCES)
    url = stacks.physical(name, "Queue")
    changed = {"MessageRetentionPeriod": 600, "Tags": [{"Key": "cost", "Value": "1"}]}
    stacks.update(name, {**RESOURCES, "Queue": {"Type": "AWS::SQS::Queue", "Properties": changed}})
    assert stacks.physical(name, "Queue") == url
    found = client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert found["MessageRetentionPeriod"] == "600"
    tags = client("sqs").list_queue_tags(QueueUrl=url)["Tags"]
    assert (tags.get("cost"), "team" in tags) == ("1", False)
    stacks.delete(name)
    assert url not in client("sqs").list_queues().get("QueueUrls", [])
