"""The CloudWatch alarms of a cluster, and who is notified."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from aws_cdk import Aws
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.config import MASTER, ClusterConfig
from stacks.metrics import ROLES, Metric, MetricSources

# A file system that bursts moves 100 MiB/s, or more where it is large: an hour of that, in bytes.
HOUR_OF_BURSTING: Final = 3600 * 100 * 2**20
DISK_FULL_PERCENT: Final = 90
IO_LIMIT_PERCENT: Final = 95
_LAUNCH_FAILURES: Final = ("autoscaling:EC2_INSTANCE_LAUNCH_ERROR", "autoscaling:EC2_INSTANCE_TERMINATE_ERROR")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alarm:
    """One alarm: `metrics` beyond the first are subtracted from it."""

    id: str
    text: str
    """What is wrong and what to do, for the reader of the mail."""
    metrics: tuple[Metric, ...]
    above: float | None = None
    """Alarm beyond this value; None: see `below`."""
    below: float | None = None
    period_s: int = 60
    minutes: int = 5
    """How long the condition must last before the alarm goes off."""

    @property
    def periods(self) -> int:
        """Return for how many periods in a row the value must be out of bounds."""
        return max(1, -(-self.minutes * 60 // self.period_s))


def alarms(config: ClusterConfig, sources: MetricSources) -> Iterator[Alarm]:
    """Yield the alarms of a cluster."""
    for role in ROLES:
        yield from _nodes(role, config, sources)
    yield from _files(config, sources)
    for number, nat in enumerate(sources.nat_gateways, start=1):
        yield Alarm(
            id=f"NatPorts{number}",
            text="The NAT gateway has no port left for another connection to the same destination: connections of "
            "the workers fail. Fetch once and share through the file system, or fetch through an S3 endpoint.",
            metrics=(sources.gateway(nat, "ErrorPortAllocation"),),
            above=0,
        )


def _files(config: ClusterConfig, sources: MetricSources) -> Iterator[Alarm]:
    """Yield the alarms of the shared file system; the settings of an existing one are not known."""
    foreign = bool(config.file_system_id)
    if foreign or config.efs_performance == "generalPurpose":  # the other mode has no such limit
        yield Alarm(
            id="EfsIoLimit",
            text=f"The shared file system is at {IO_LIMIT_PERCENT}% of the operations that it can do: data is read in "
            "small pieces by many nodes. Stage the data on the nodes' own disks, or pack it into fewer, larger files.",
            metrics=(sources.files("PercentIOLimit", "Maximum"),),
            above=IO_LIMIT_PERCENT,
            minutes=15,
        )
    if foreign or config.efs_throughput == "bursting":  # the other modes have no credits
        yield Alarm(
            id="EfsBurstCredits",
            text="The shared file system's burst credits last for an hour more at 100 MiB/s; then it falls back to the "
            "throughput that its size earns. Stage the data on the nodes' own disks, or set another throughput mode.",
            metrics=(sources.files("BurstCreditBalance", "Minimum"),),
            below=HOUR_OF_BURSTING,
            minutes=15,
        )


def _nodes(role: str, config: ClusterConfig, sources: MetricSources) -> Iterator[Alarm]:
    name = role.capitalize()
    yield Alarm(
        id=f"{name}Missing",
        text=f"Fewer {role} instances are in service than wanted, for longer than a boot may take "
        f"({config.ready_timeout_min} min): the group's activities say why, such as a lack of capacity or a quota.",
        metrics=(
            sources.group(role, "GroupDesiredCapacity", "Minimum"),
            sources.group(role, "GroupInServiceInstances", "Minimum"),
        ),
        above=0,
        minutes=config.ready_timeout_min,
    )
    yield Alarm(
        id=f"{name}StatusCheck",
        text=f"An instance ({role}) fails EC2's status checks. The group replaces it, and a run on it ends."
        + (" The supervisor goes with the master." if role == MASTER else ""),
        metrics=(sources.instances(role, "StatusCheckFailed", "Maximum"),),
        above=0,
        minutes=2,
    )
    if sources.node_metrics:
        yield Alarm(
            id=f"{name}DiskFull",
            text=f"A disk of an instance ({role}) is {DISK_FULL_PERCENT}% full: `fab run -- df -h` tells which. "
            f"Make room, or set a larger {role}_volume_gib.",
            metrics=(sources.agents(role, "disk_used_percent", "Maximum"),),
            above=DISK_FULL_PERCENT,
            # One period, and one sample in it, is enough: a disk that was full for a moment broke something. Alarms
            # know no periods but multiples of a minute, and in one shorter than the agent's they would find nothing.
            period_s=max(300, 60 * -(-config.metrics_interval_s // 60)),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlarmsProps:
    config: ClusterConfig
    sources: MetricSources


class Alarms(Construct):
    """The alarms, and the topic that notifies people."""

    def __init__(self, scope: Construct, id: str, props: AlarmsProps) -> None:
        super().__init__(scope, id)
        self.topics: list[str] = [props.config.alarm_topic] if props.config.alarm_topic else []
        self._policy: sns.CfnTopicPolicy | None = None
        if props.config.alarm_emails:
            self.topics.append(self._create_topic(props.config))
        self.arns = tuple(self._create_alarm(alarm).attr_arn for alarm in alarms(props.config, props.sources))

    def notify_launch_failures(self, group: autoscaling.AutoScalingGroup) -> None:
        """Notify of each failed launch and its reason, for which there is no metric."""
        resource = group.node.default_child
        if self.topics and isinstance(resource, autoscaling.CfnAutoScalingGroup):
            resource.notification_configurations = [
                autoscaling.CfnAutoScalingGroup.NotificationConfigurationProperty(
                    topic_arn=topic, notification_types=list(_LAUNCH_FAILURES)
                )
                for topic in self.topics
            ]
            if self._policy:
                group.node.add_dependency(self._policy)

    def _create_topic(self, config: ClusterConfig) -> str:
        # Without a key: alarms may not use AWS's own key for SNS, and one of one's own costs money each month.
        topic = sns.CfnTopic(self, "Topic", display_name=f"deepcdk {config.name}")
        for number, address in enumerate(config.alarm_emails, start=1):
            sns.CfnSubscription(self, f"Mail{number}", topic_arn=topic.ref, protocol="email", endpoint=address)
        self._policy = sns.CfnTopicPolicy(
            self, "Policy", topics=[topic.ref], policy_document=_topic_policy(topic.ref).to_json()
        )
        return topic.ref

    def _create_alarm(self, alarm: Alarm) -> cloudwatch.CfnAlarm:
        values: dict[str, Any] = {
            "alarm_description": alarm.text,
            "comparison_operator": "LessThanThreshold" if alarm.above is None else "GreaterThanThreshold",
            "threshold": alarm.below if alarm.above is None else alarm.above,
            "evaluation_periods": alarm.periods,
            "datapoints_to_alarm": alarm.periods,
            "treat_missing_data": "notBreaching",  # no nodes, no figures: a group that is scaled to 0 is well
            "alarm_actions": self.topics,
            "ok_actions": self.topics,
        }
        if len(alarm.metrics) == 1:
            (metric,) = alarm.metrics
            return cloudwatch.CfnAlarm(
                self,
                alarm.id,
                **values,
                namespace=metric.namespace,
                metric_name=metric.name,
                dimensions=_dimensions(metric),
                statistic=metric.statistic,
                period=alarm.period_s,
            )
        return cloudwatch.CfnAlarm(self, alarm.id, **values, metrics=_difference(alarm))


def _difference(alarm: Alarm) -> list[cloudwatch.CfnAlarm.MetricDataQueryProperty]:
    query = cloudwatch.CfnAlarm.MetricDataQueryProperty
    names = [f"m{number}" for number in range(1, len(alarm.metrics) + 1)]
    return [
        query(id="difference", expression=" - ".join(names), label=alarm.id, return_data=True),
        *(
            query(
                id=name,
                return_data=False,
                metric_stat=cloudwatch.CfnAlarm.MetricStatProperty(
                    metric=cloudwatch.CfnAlarm.MetricProperty(
                        namespace=metric.namespace, metric_name=metric.name, dimensions=_dimensions(metric)
                    ),
                    period=alarm.period_s,
                    stat=metric.statistic,
                ),
            )
            for name, metric in zip(names, alarm.metrics, strict=True)
        ),
    ]


def _dimensions(metric: Metric) -> list[cloudwatch.CfnAlarm.DimensionProperty]:
    return [cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value) for name, value in metric.dimensions.items()]


def _topic_policy(topic: str) -> iam.PolicyDocument:
    """Allow this account's alarms to publish, over TLS only; the groups publish with a role that AWS makes for them."""
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
