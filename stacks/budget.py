"""The budget of a cluster, and how its message that it is spent becomes a metric.

AWS Budgets has actions of its own, which attach policies or stop instances with given ids. The first end no running
instance; the second miss newer instances, and Auto Scaling replaces those that they stop. So the budget notifies a
topic, the topic fills a queue, and an alarm acts on the queue's length. SQS drops a message after two weeks; so a
second alarm, on the age of the oldest one, sends another before that, and so on until the queue is purged.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from aws_cdk import Acknowledgment, Aws, Duration, RemovalPolicy, Validations
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.config import CLUSTER_TAG, ClusterConfig, LimitId

WARNING_PERCENT: Final = 80
SPENT_PERCENT: Final = 100
HELD: Final = Duration.days(14)
"""How long SQS keeps a message at most."""
RENEWED: Final = Duration.days(12)
"""So old is a message when another is sent: two days are for metrics that come late, and for a topic's own retries."""
RENEWAL_PERIOD_S: Final = 3600

_Notification = budgets.CfnBudget.NotificationWithSubscribersProperty
_Subscriber = budgets.CfnBudget.SubscriberProperty


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetProps:
    config: ClusterConfig


class Budget(Construct):
    """The budget and, where it stops workers, the topic and the queue that carry its message."""

    def __init__(self, scope: Construct, id: str, props: BudgetProps) -> None:
        super().__init__(scope, id)
        config = props.config
        self.queue_name = ""
        topic = self._create_way() if config.budget_stops_workers else None
        emails = [_Subscriber(subscription_type="EMAIL", address=address) for address in config.budget_emails]
        stops = [_Subscriber(subscription_type="SNS", address=topic.topic_arn)] if topic else []
        notifications = [_notification("ACTUAL", SPENT_PERCENT, [*emails, *stops])]
        if emails:
            notifications += [
                _notification("ACTUAL", WARNING_PERCENT, emails),
                _notification("FORECASTED", SPENT_PERCENT, emails),
            ]
        of_cluster = {"TagKeyValue": [f"user:{CLUSTER_TAG}${config.name}"]}
        monthly = budgets.CfnBudget(
            self,
            "Monthly",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=config.budget_usd, unit="USD"),
                cost_filters=of_cluster if config.budget_scope == "cluster" else None,
            ),
            notifications_with_subscribers=notifications,
        )
        if topic:
            monthly.node.add_dependency(topic.node.find_child("Policy"))  # without it the budget may not publish

    def _create_way(self) -> sns.Topic:
        """Create topic and queue; return the topic."""
        topic = sns.Topic(self, "Spent", enforce_ssl=True)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="BudgetsOfThisAccountTell",
                principals=[iam.ServicePrincipal("budgets.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
        queue = sqs.Queue(
            self,
            "Word",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=HELD,
            removal_policy=RemovalPolicy.DESTROY,
        )
        resource = queue.node.default_child
        if isinstance(resource, sqs.CfnQueue):
            resource.override_logical_id(LimitId.QUEUE)
        Validations.of(queue).acknowledge(
            Acknowledgment(
                id="AwsSolutions-SQS3",
                reason="Nobody reads the queue, so no message can fail to be read: its length is all that matters.",
            )
        )
        topic.add_subscription(subscriptions.SqsSubscription(queue))
        self.queue_name = queue.queue_name
        self._renew(topic)
        return topic

    def _renew(self, topic: sns.Topic) -> None:
        """Send another message before the oldest one expires: the queue reports no age while it is empty."""
        alarm = cloudwatch.CfnAlarm(
            self,
            "Renewal",
            alarm_description="The message that the budget is spent expires in two days: another one is sent.",
            namespace="AWS/SQS",
            metric_name="ApproximateAgeOfOldestMessage",
            dimensions=[cloudwatch.CfnAlarm.DimensionProperty(name="QueueName", value=self.queue_name)],
            statistic="Maximum",
            period=RENEWAL_PERIOD_S,
            evaluation_periods=1,
            threshold=RENEWED.to_seconds(),
            comparison_operator="GreaterThanOrEqualToThreshold",
            treat_missing_data="notBreaching",
            alarm_actions=[topic.topic_arn],
        )
        alarm.override_logical_id(LimitId.RENEWAL)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="TheAlarmOfThisStackTells",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                    "ArnLike": {"aws:SourceArn": f"{_alarm_arn_prefix()}{Aws.STACK_NAME}-{LimitId.RENEWAL}-*"},
                },
            )
        )


def _alarm_arn_prefix() -> str:
    return f"arn:{Aws.PARTITION}:cloudwatch:{Aws.REGION}:{Aws.ACCOUNT_ID}:alarm:"


def _notification(kind: str, percent: int, subscribers: list[_Subscriber]) -> _Notification:
    return _Notification(
        notification=budgets.CfnBudget.NotificationProperty(
            notification_type=kind,
            comparison_operator="GREATER_THAN",
            threshold=percent,
            threshold_type="PERCENTAGE",
        ),
        subscribers=subscribers,
    )
