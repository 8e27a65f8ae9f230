"""The monthly budget of a cluster, and a metric that reports that it is spent.

The actions of AWS Budgets can only attach policies or stop instances with given IDs. A policy stops no running
instance. A list of IDs lacks newer instances, and Auto Scaling replaces the stopped ones. So the budget notifies a
topic, the topic puts a message into a queue, and an alarm acts on the length of the queue. SQS deletes a message after
two weeks. A second alarm, on the age of the oldest message, therefore sends another message before that, again and
again until the queue is purged.
"""

from __future__ import annotations

from typing import Final, cast

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
"""SQS's longest retention of a message."""
RENEWED: Final = Duration.days(12)
"""Age of the message when another is sent. Two days remain for late metrics and for the topic's own retries."""
RENEWAL_PERIOD_S: Final = 3600

_Notification = budgets.CfnBudget.NotificationWithSubscribersProperty
_Subscriber = budgets.CfnBudget.SubscriberProperty


class Budget(Construct):
    """The budget and, if it stops workers, the topic and the queue for its message."""

    def __init__(self, scope: Construct, id: str, config: ClusterConfig) -> None:
        super().__init__(scope, id)
        self.queue_name = ""
        """Name of the queue for the message; empty if the budget does not stop workers."""
        topic = self._create_topic() if config.budget_stops_workers else None
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
            monthly.node.add_dependency(topic.node.find_child("Policy"))  # otherwise the budget may not publish

    def _create_topic(self) -> sns.Topic:
        """Create the topic that AWS Budgets notifies when the budget is spent; return the topic.

        Also create the queue that keeps the topic's message, and the alarm that renews the message.
        """
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
        cast(sqs.CfnQueue, queue.node.default_child).override_logical_id(LimitId.QUEUE)
        Validations.of(queue).acknowledge(
            Acknowledgment(
                id="AwsSolutions-SQS3",
                reason="The queue has no consumer, so no delivery can fail. Only the queue's length is used.",
            )
        )
        topic.add_subscription(subscriptions.SqsSubscription(queue))
        self.queue_name = queue.queue_name
        self._renew(topic)
        return topic

    def _renew(self, topic: sns.Topic) -> None:
        """Create an alarm that sends another message to the topic before the oldest message in the queue expires.

        An empty queue reports no age, so the alarm then sends no message.
        """
        alarm = cloudwatch.CfnAlarm(
            self,
            "Renewal",
            alarm_description="The message about the spent budget expires in two days, so it is sent again.",
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
        alarms = f"arn:{Aws.PARTITION}:cloudwatch:{Aws.REGION}:{Aws.ACCOUNT_ID}:alarm"
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="TheAlarmOfThisStackTells",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                    "ArnLike": {"aws:SourceArn": f"{alarms}:{Aws.STACK_NAME}-{LimitId.RENEWAL}-*"},
                },
            )
        )


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
