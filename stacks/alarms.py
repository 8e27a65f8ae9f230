"""The CloudWatch alarms of a cluster, and the people and topics to notify."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final, cast

from aws_cdk import Aws, Duration
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.config import MASTER, ClusterConfig
from stacks.metrics import ROLES, MetricSources

# Bytes of burst credit that last for an hour at 100 MiB/s. A bursting file system allows that rate, large ones more.
HOUR_OF_BURSTING: Final = 3600 * 100 * 2**20
DISK_FULL_PERCENT: Final = 90
IO_LIMIT_PERCENT: Final = 95
_LAUNCH_FAILURES: Final = ("autoscaling:EC2_INSTANCE_LAUNCH_ERROR", "autoscaling:EC2_INSTANCE_TERMINATE_ERROR")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alarm:
    """Description of an alarm for a metric that leaves its range. `Alarms` creates the alarm in the stack."""

    id: str
    text: str
    """The problem and its fix, for the reader of the notification."""
    metric: cloudwatch.IMetric
    above: float | None = None
    """Alarm above this value; None: use `below`."""
    below: float | None = None
    period_s: int = 60
    minutes: int = 5
    """How long the condition must last before the alarm is raised."""

    @property
    def periods(self) -> int:
        """Return how many consecutive periods the value must be out of range."""
        return max(1, -(-self.minutes * 60 // self.period_s))


def alarms(config: ClusterConfig, sources: MetricSources) -> Iterator[Alarm]:
    """Yield descriptions of the alarms that apply to a cluster's nodes, shared file system and NAT gateways."""
    for role in ROLES:
        yield from _nodes(role, config, sources)
    yield from _files(config, sources)
    for number, nat in enumerate(sources.nat_gateways, start=1):
        yield Alarm(
            id=f"NatPorts{number}",
            text="The NAT gateway has no free port for another connection to the same destination, so connections of "
            "the workers fail. Download once and share the files on the file system, or use an S3 endpoint.",
            metric=sources.gateway(nat, "ErrorPortAllocation"),
            above=0,
        )


def _files(config: ClusterConfig, sources: MetricSources) -> Iterator[Alarm]:
    """Yield the alarms of the shared file system that apply to its settings.

    An existing file system gets all of them, because its settings are unknown.
    """
    foreign = bool(config.file_system_id)
    if foreign or config.efs_performance == "generalPurpose":  # maxIO has no such limit
        yield Alarm(
            id="EfsIoLimit",
            text=f"The shared file system is at {IO_LIMIT_PERCENT}% of its limit of operations: many nodes read small "
            "pieces. Stage the data on the nodes' own disks, or pack the data into fewer, larger files.",
            metric=sources.files("PercentIOLimit", "Maximum"),
            above=IO_LIMIT_PERCENT,
            minutes=15,
        )
    if foreign or config.efs_throughput == "bursting":  # the other modes have no burst credits
        yield Alarm(
            id="EfsBurstCredits",
            text="The shared file system's burst credits last for another hour at 100 MiB/s. After that, throughput "
            "drops to the baseline of its size. Stage the data on the nodes' own disks, or change efs_throughput.",
            metric=sources.files("BurstCreditBalance", "Minimum"),
            below=HOUR_OF_BURSTING,
            minutes=15,
        )


def _nodes(role: str, config: ClusterConfig, sources: MetricSources) -> Iterator[Alarm]:
    name = role.capitalize()
    yield Alarm(
        id=f"{name}Missing",
        text=f"For more than {config.ready_min} minutes, the time limit of a boot, fewer {role} instances are in "
        "service than desired. `fab status` shows the reason, for example a quota.",
        metric=cloudwatch.MathExpression(
            expression="wanted - running",
            label=f"{name}Missing",
            period=Duration.minutes(1),
            using_metrics={
                "wanted": sources.group(role, "GroupDesiredCapacity", "Minimum"),
                "running": sources.group(role, "GroupInServiceInstances", "Minimum"),
            },
        ),
        above=0,
        minutes=config.ready_min,
    )
    yield Alarm(
        id=f"{name}StatusCheck",
        text=f"An instance ({role}) fails EC2's status checks. The Auto Scaling group replaces the instance. Ranks on "
        "the instance are lost." + (" The supervisor is lost too." if role == MASTER else ""),
        metric=sources.instances(role, "StatusCheckFailed", "Maximum"),
        above=0,
        minutes=2,
    )
    if sources.node_metrics:
        # One sample is enough: even a disk that was full only for a moment may have broken something. Alarm periods are
        # whole minutes, and a period shorter than the agent's interval would have no data.
        disk_period_s = max(300, 60 * -(-config.metrics_interval_s // 60))
        yield Alarm(
            id=f"{name}DiskFull",
            text=f"A disk of an instance ({role}) is {DISK_FULL_PERCENT}% full. `fab run -- df -h` shows the disks. "
            f"`fab clean` removes unused files. If that is not enough, increase {role}_volume_gib.",
            metric=sources.agents(role, "disk_used_percent", "Maximum").with_(period=Duration.seconds(disk_period_s)),
            above=DISK_FULL_PERCENT,
            period_s=disk_period_s,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlarmsProps:
    config: ClusterConfig
    sources: MetricSources


class Alarms(Construct):
    """The alarms, and the SNS topics that they notify."""

    def __init__(self, scope: Construct, id: str, props: AlarmsProps) -> None:
        super().__init__(scope, id)
        self.topics: list[str] = [props.config.alarm_topic] if props.config.alarm_topic else []
        self._policy: sns.CfnTopicPolicy | None = None
        if props.config.alarm_emails:
            self.topics.append(self._create_topic(props.config))
        self.created = [self._create_alarm(alarm) for alarm in alarms(props.config, props.sources)]

    def notify_launch_failures(self, group: autoscaling.AutoScalingGroup) -> None:
        """Make a group notify the topics of each failed launch or termination, with the reason.

        No metric counts these failures. Does nothing without topics.
        """
        if not self.topics:
            return
        notification = autoscaling.CfnAutoScalingGroup.NotificationConfigurationProperty
        cast(autoscaling.CfnAutoScalingGroup, group.node.default_child).notification_configurations = [
            notification(topic_arn=topic, notification_types=list(_LAUNCH_FAILURES)) for topic in self.topics
        ]
        if self._policy:
            group.node.add_dependency(self._policy)

    def _create_topic(self, config: ClusterConfig) -> str:
        # Not encrypted: alarms cannot use AWS's own key for SNS, and a customer key costs money each month.
        topic = sns.CfnTopic(self, "Topic", display_name=f"deepcdk {config.name}")
        for number, address in enumerate(config.alarm_emails, start=1):
            sns.CfnSubscription(self, f"Mail{number}", topic_arn=topic.ref, protocol="email", endpoint=address)
        self._policy = sns.CfnTopicPolicy(
            self, "Policy", topics=[topic.ref], policy_document=_topic_policy(topic.ref).to_json()
        )
        return topic.ref

    def _create_alarm(self, alarm: Alarm) -> cloudwatch.Alarm:
        operator = cloudwatch.ComparisonOperator
        threshold = alarm.below if alarm.above is None else alarm.above
        created = cloudwatch.Alarm(
            self,
            alarm.id,
            alarm_description=alarm.text,
            metric=alarm.metric,
            comparison_operator=operator.LESS_THAN_THRESHOLD
            if alarm.above is None
            else operator.GREATER_THAN_THRESHOLD,
            threshold=threshold or 0,
            evaluation_periods=alarm.periods,
            datapoints_to_alarm=alarm.periods,
            # A group that is scaled to 0 has no data, which is not an error.
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        for name in self.topics:
            action = actions.SnsAction(sns.Topic.from_topic_arn(created, f"Topic{len(created.node.children)}", name))
            created.add_alarm_action(action)
            created.add_ok_action(action)
        return created


def _topic_policy(topic: str) -> iam.PolicyDocument:
    """Return the policy of a topic: alarms of this account may publish, only over TLS.

    Auto Scaling groups publish with a role that AWS makes, which needs no statement.
    """
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            ),
            iam.PolicyStatement(
                sid="TlsOnly",
                effect=iam.Effect.DENY,
                principals=[iam.StarPrincipal()],
                actions=["sns:Publish"],
                resources=[topic],
                conditions={"Bool": {"aws:SecureTransport": "false"}},
            ),
        ]
    )
