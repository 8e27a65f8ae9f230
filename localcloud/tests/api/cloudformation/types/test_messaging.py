"""Topics, queues and budgets of a template."""

from __future__ import annotations

import json
from typing import Any

from api.templates import Client, Stacks
from refusals.templates import ref, resource

STATEMENT = {
    "Effect": "Allow",
    "Principal": {"Service": "cloudwatch.amazonaws.com"},
    "Action": "sns:Publish",
    "Resource": ref("Topic"),
}


def resources(*, email: str = "ops@example.com", **topic: Any) -> dict[str, Any]:
    return {
        "Topic": resource("SNS::Topic", **topic),
        "Policy": resource(
            "SNS::TopicPolicy",
            Topics=[ref("Topic")],
            PolicyDocument={"Version": "2012-10-17", "Statement": [STATEMENT]},
        ),
        "Mail": resource("SNS::Subscription", TopicArn=ref("Topic"), Protocol="email", Endpoint=email),
    }


def subscribers(client: Client, arn: str) -> list[str]:
    found = client("sns").list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]
    return [each["Endpoint"] for each in found]


def topics(client: Client) -> set[str]:
    return {each["TopicArn"] for each in client("sns").list_topics()["Topics"]}


def test_topic_has_policy_and_subscriber_and_is_deleted_with_stack(client: Client, stacks: Stacks) -> None:
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


def test_new_address_replaces_subscription_but_not_topic(client: Client, stacks: Stacks) -> None:
    stack = stacks.create(resources())
    arn = stacks.physical(stack, "Topic")
    stacks.update(stack, resources(email="night@example.com", DisplayName="later"))
    assert stacks.physical(stack, "Topic") == arn
    assert subscribers(client, arn) == ["night@example.com"]
    assert client("sns").get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] == "later"


def test_topic_with_existing_name_fails_its_stack(client: Client, stacks: Stacks) -> None:
    arn = client("sns").create_topic(Name="taken")["TopicArn"]
    assert stacks.describe(stacks.create(resources(TopicName="taken")))["StackStatus"] == "ROLLBACK_COMPLETE"
    assert arn in topics(client)


DOCUMENT: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}],
}
RESOURCES: dict[str, Any] = {
    "Topic": resource("SNS::Topic"),
    "Queue": resource("SQS::Queue", MessageRetentionPeriod=1209600, Tags=[{"Key": "team", "Value": "a"}]),
    "Policy": resource("SQS::QueuePolicy", PolicyDocument=DOCUMENT, Queues=[ref("Queue")]),
    "Way": resource(
        "SNS::Subscription", Protocol="sqs", TopicArn=ref("Topic"), Endpoint={"Fn::GetAtt": ["Queue", "Arn"]}
    ),
}


def test_published_messages_stay_in_the_queue_until_it_is_purged(client: Client, stacks: Stacks) -> None:
    name = stacks.create(RESOURCES)
    url = stacks.physical(name, "Queue")
    client("sns").publish(TopicArn=stacks.physical(name, "Topic"), Message="spent")
    asked = {"QueueUrl": url, "AttributeNames": ["All"]}
    found = client("sqs").get_queue_attributes(**asked)["Attributes"]
    assert (found["ApproximateNumberOfMessages"], found["MessageRetentionPeriod"]) == ("1", "1209600")
    assert '"Statement"' in found["Policy"]
    client("sqs").purge_queue(QueueUrl=url)
    assert client("sqs").get_queue_attributes(**asked)["Attributes"]["ApproximateNumberOfMessages"] == "0"


def test_queue_is_updated_in_place_and_deleted_with_stack(client: Client, stacks: Stacks) -> None:
    name = stacks.create(RESOURCES)
    url = stacks.physical(name, "Queue")
    changed = {"MessageRetentionPeriod": 600, "Tags": [{"Key": "cost", "Value": "1"}]}
    stacks.update(name, {**RESOURCES, "Queue": resource("SQS::Queue", **changed)})
    assert stacks.physical(name, "Queue") == url
    found = client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert found["MessageRetentionPeriod"] == "600"
    tags = client("sqs").list_queue_tags(QueueUrl=url)["Tags"]
    assert (tags.get("cost"), "team" in tags) == ("1", False)
    stacks.delete(name)
    assert url not in client("sqs").list_queues().get("QueueUrls", [])


ACCOUNT = "123456789012"


def budget(amount: int) -> dict[str, Any]:
    notification = {
        "NotificationType": "ACTUAL",
        "ComparisonOperator": "GREATER_THAN",
        "Threshold": 100,
        "ThresholdType": "PERCENTAGE",
    }
    return {
        "Budget": resource(
            "Budgets::Budget",
            Budget={
                "BudgetType": "COST",
                "TimeUnit": "MONTHLY",
                "BudgetLimit": {"Amount": amount, "Unit": "USD"},
                "CostFilters": {"TagKeyValue": ["user:deepcdk:cluster$one"]},
            },
            NotificationsWithSubscribers=[
                {
                    "Notification": notification,
                    "Subscribers": [{"SubscriptionType": "EMAIL", "Address": "ops@example.com"}],
                }
            ],
        )
    }


def test_budget_is_created_updated_and_deleted(client: Client, stacks: Stacks) -> None:
    def limits() -> dict[str, str]:
        found = client("budgets").describe_budgets(AccountId=ACCOUNT).get("Budgets", [])
        return {each["BudgetName"]: each["BudgetLimit"]["Amount"] for each in found}

    name = stacks.create(budget(500))
    physical = stacks.physical(name, "Budget")
    assert limits() == {physical: "500"}
    told = client("budgets").describe_notifications_for_budget(AccountId=ACCOUNT, BudgetName=physical)
    assert [each["Threshold"] for each in told["Notifications"]] == [100]
    stacks.update(name, budget(700))
    assert (stacks.physical(name, "Budget"), limits()) == (physical, {physical: "700"})
    stacks.delete(name)
    assert limits() == {}
