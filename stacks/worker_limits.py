"""Stop unattended workers: when they are idle, after a number of hours, or when the budget is spent.

This works without the laptop and the master. Each limit is a CloudWatch alarm that executes the worker group's only
scaling policy, which sets the group's size to zero. An alarm repeats this action every minute while it lasts. So it
must end when the group is empty, or the group could never grow again: an empty group is neither idle nor running.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Final

from aws_cdk import Acknowledgment, Aws, Validations
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.budget import Budget
from stacks.config import ClusterConfig, LimitId
from stacks.config_keys.limits import DAY_H
from stacks.instance_types import find
from stacks.observability import namespace, publish_group_metrics

IDLE_PERIOD_S: Final = 300
"""Period of EC2's metrics without detailed monitoring."""
BUSY_BYTES: Final = 15_000_000
"""A worker is not idle if it receives or sends this many bytes between two samples of EC2 (five minutes, or one).

The heartbeats of an idle node are far fewer bytes. Incoming data at 250 kB/s are more."""
LIVE_RUNS: Final = "LiveRuns"
"""Metric that the master publishes each minute while a run is live (`agent/supervisor/idle_alarm_metric.py`)."""
ANY_SIZE: Final = 1_000_000
"""More workers than a group can have."""
HOURS_PERIOD_S: Final = 300
LONG_PERIOD_S: Final = 3600
QUEUE_PERIOD_S: Final = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitsProps:
    config: ClusterConfig
    workers: autoscaling.AutoScalingGroup
    master: iam.IRole
    """Role of the master, which executes the policy when runs that asked for it are done, publishes LIVE_RUNS, and has
    lost workers replaced."""


class Limits(Construct):
    """The policy that empties the worker group, the alarms that execute it, and the budget."""

    def __init__(self, scope: Construct, id: str, props: LimitsProps) -> None:
        super().__init__(scope, id)
        config = props.config
        self._group = props.workers.auto_scaling_group_name
        budget = Budget(self, "Budget", config) if config.budget_usd else None
        self.stop = self._create_policy()
        self._admit(props.master, namespace(config), replaces=config.max_replacements_per_hour > 0)
        if config.idle_minutes or config.max_hours:
            publish_group_metrics(props.workers)
        if config.idle_minutes:
            self._watch_idleness(config)
        if config.max_hours:
            self._watch_hours(config)
        if budget and budget.queue_name:
            self._watch_budget(budget.queue_name)

    def _create_policy(self) -> autoscaling.CfnScalingPolicy:
        policy = autoscaling.CfnScalingPolicy(
            self,
            "Stop",
            auto_scaling_group_name=self._group,
            # Step scaling has no cooldown, and it works even while a launch is in progress.
            policy_type="StepScaling",
            adjustment_type="ExactCapacity",
            step_adjustments=[
                autoscaling.CfnScalingPolicy.StepAdjustmentProperty(metric_interval_lower_bound=0, scaling_adjustment=0)
            ],
        )
        policy.override_logical_id(LimitId.POLICY)
        return policy

    def _admit(self, master: iam.IRole, namespace: str, *, replaces: bool) -> None:
        """Allow the master to stop the workers, to publish metrics, and with `replaces` to have workers replaced.

        It may execute the worker group's only policy, and publish metrics such as LIVE_RUNS in the cluster's namespace.
        With `replaces`, it may describe groups and their scaling activities, and mark workers as unhealthy. It may not
        set the group's size, because an attacker on the master could then start nodes. The statements are in a separate
        policy, because the workers depend on the roles.
        """
        name = f"autoScalingGroup:*:autoScalingGroupName/{self._group}"
        arn = f"arn:{Aws.PARTITION}:autoscaling:{Aws.REGION}:{Aws.ACCOUNT_ID}:{name}"
        stop = iam.PolicyStatement(actions=["autoscaling:ExecutePolicy"], resources=[arn])
        publish = iam.PolicyStatement(
            actions=["cloudwatch:PutMetricData"],
            resources=["*"],
            conditions={"StringEquals": {"cloudwatch:namespace": namespace}},
        )
        replace = iam.PolicyStatement(actions=["autoscaling:SetInstanceHealth"], resources=[arn])
        # To find out which workers are in service, and why a launch failed.
        see = iam.PolicyStatement(
            actions=["autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"], resources=["*"]
        )
        statements = [stop, publish, *([replace, see] if replaces else [])]
        policy = iam.Policy(self, "MasterStops", roles=[master], statements=statements)
        Validations.of(policy).acknowledge(
            Acknowledgment(
                id="AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:autoscaling:<AWS::Region>:<AWS::AccountId>:"
                "autoScalingGroup:*:autoScalingGroupName/<WorkerGroup>]",
                reason="The wildcard matches the UUID that AWS assigns to the group. The group's name is in the ARN.",
            ),
            Acknowledgment(
                id="AwsSolutions-IAM5[Resource::*]",
                reason="PutMetricData supports no resources. A condition limits it to the cluster's namespace. The "
                "actions that describe groups and their activities support none either.",
            ),
        )

    def _watch_idleness(self, config: ClusterConfig) -> None:
        """Create an alarm that stops all workers when no worker was busy and no run was live for `idle_minutes`.

        A worker is busy if its CPU use or its network traffic reaches a limit. If a period has no data, the last value
        is used, except that LIVE_RUNS counts as 0. The alarm takes one period more than configured, since the first may
        be incomplete.
        """
        # While a run is live, the group's size would have to exceed ANY_SIZE. LIVE_RUNS is counted (SampleCount), so
        # the product is never negative. CloudWatch uses 0 for a missing metric, so this also works before the first
        # run.
        cpu = idle_cpu_percent(config)
        moved = f"FILL(received, REPEAT) > {BUSY_BYTES} OR FILL(sent, REPEAT) > {BUSY_BYTES}"
        busy = f"FILL(cpu, REPEAT) >= {cpu:g} OR {moved}"
        self._alarm(
            LimitId.IDLE,
            text=f"For {config.idle_minutes} minutes, no run was live, and each worker used less than {cpu:g}% of its "
            f"processor and moved less than {BUSY_BYTES / 1e6:g} MB between two samples. All workers are terminated.",
            expression=f"IF(FILL(size, REPEAT) > FILL(runs, 0) * {ANY_SIZE}, IF({busy}, 0, 1), 0)",
            metrics=(
                self._metric("size", "AWS/AutoScaling", "GroupInServiceInstances", "Minimum", IDLE_PERIOD_S),
                self._metric("cpu", "AWS/EC2", "CPUUtilization", "Maximum", IDLE_PERIOD_S),
                self._metric("received", "AWS/EC2", "NetworkIn", "Maximum", IDLE_PERIOD_S),
                self._metric("sent", "AWS/EC2", "NetworkOut", "Maximum", IDLE_PERIOD_S),
                self._metric("runs", namespace(config), LIVE_RUNS, "SampleCount", IDLE_PERIOD_S, of_group=False),
            ),
            periods=config.idle_minutes * 60 // IDLE_PERIOD_S + 1,
        )

    def _watch_hours(self, config: ClusterConfig) -> None:
        """Create an alarm that stops all workers after the group has had a worker for `max_hours` without a break.

        If a period has no data, the last value is used.
        """
        period_s = HOURS_PERIOD_S if config.max_hours <= DAY_H else LONG_PERIOD_S
        self._alarm(
            LimitId.HOURS,
            text=f"There have been workers for {config.max_hours:g} hours without a break. All workers are terminated.",
            expression="IF(FILL(size, REPEAT) > 0, 1, 0)",
            metrics=(self._metric("size", "AWS/AutoScaling", "GroupInServiceInstances", "Minimum", period_s),),
            periods=math.ceil(config.max_hours * 3600 / period_s),
        )

    def _watch_budget(self, queue: str) -> None:
        """Create an alarm that stops all workers while the message about the spent budget is in its queue.

        Missing data keep the alarm's state.
        """
        alarm = cloudwatch.CfnAlarm(
            self,
            LimitId.BUDGET,
            alarm_description="The budget is spent. All workers, and any new ones, are terminated until `fab release`.",
            namespace="AWS/SQS",
            metric_name="ApproximateNumberOfMessagesVisible",
            dimensions=[cloudwatch.CfnAlarm.DimensionProperty(name="QueueName", value=queue)],
            statistic="Maximum",
            period=QUEUE_PERIOD_S,
            evaluation_periods=1,
            threshold=1,
            comparison_operator="GreaterThanOrEqualToThreshold",
            treat_missing_data="ignore",
            alarm_actions=[self.stop.ref],
        )
        alarm.override_logical_id(LimitId.BUDGET)

    def _alarm(
        self,
        id: str,
        *,
        text: str,
        expression: str,
        metrics: tuple[cloudwatch.CfnAlarm.MetricDataQueryProperty, ...],
        periods: int,
    ) -> None:
        """Create an alarm that stops all workers while `expression` is above 0.5 in each of the last `periods`.

        `text` describes the alarm. `metrics` are those that the expression uses. Without data, no workers are stopped.
        """
        value = cloudwatch.CfnAlarm.MetricDataQueryProperty(id="bound", expression=expression, return_data=True)
        alarm = cloudwatch.CfnAlarm(
            self,
            id,
            alarm_description=text,
            metrics=[value, *metrics],
            comparison_operator="GreaterThanThreshold",
            threshold=0.5,
            evaluation_periods=periods,
            # Before the first data, and after a long gap in the data, no workers are stopped.
            treat_missing_data="notBreaching",
            alarm_actions=[self.stop.ref],
        )
        alarm.override_logical_id(id)

    def _metric(
        self, id: str, namespace: str, name: str, statistic: str, period_s: int, *, of_group: bool = True
    ) -> cloudwatch.CfnAlarm.MetricDataQueryProperty:
        dimension = cloudwatch.CfnAlarm.DimensionProperty(name="AutoScalingGroupName", value=self._group)
        metric = cloudwatch.CfnAlarm.MetricProperty(
            namespace=namespace, metric_name=name, dimensions=[dimension] if of_group else None
        )
        stat = cloudwatch.CfnAlarm.MetricStatProperty(metric=metric, period=period_s, stat=statistic)
        return cloudwatch.CfnAlarm.MetricDataQueryProperty(id=id, metric_stat=stat, return_data=False)


def idle_cpu_percent(config: ClusterConfig) -> float:
    """Return the CPU use, percent, below which a worker is idle.

    It is the configured value, or half of one vCPU, or 1 for an unknown instance type. A rank keeps at least one thread
    busy while it trains, even on GPUs, to feed them and to wait for other ranks.
    """
    if config.idle_cpu_percent:
        return config.idle_cpu_percent
    kind = find(config.worker_instance_type)
    return round(50 / kind.vcpus, 2) if kind else 1.0
