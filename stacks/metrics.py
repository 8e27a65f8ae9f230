"""The metrics of a cluster's parts, for its dashboard and its alarms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from stacks.cloudwatch_agent import ROLE
from stacks.config import MASTER, WORKER

GROUP_METRICS: Final = (
    "GroupDesiredCapacity",
    "GroupInServiceInstances",
    "GroupPendingInstances",
    "GroupTerminatingInstances",
)
"""Metrics of an Auto Scaling group. They cost nothing, but must be enabled."""
ROLES: Final = (WORKER, MASTER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricSources:
    """The parts of a cluster that have metrics or logs. Texts may be CDK tokens."""

    groups: Mapping[str, str]
    """Names of the Auto Scaling groups, by role."""
    file_system: str
    nat_gateways: tuple[str, ...]
    """Empty if the VPC does not belong to the cluster."""
    namespace: str
    """Namespace of the agents' metrics."""
    node_metrics: bool
    gpus: bool
    efa: bool
    log_groups: tuple[str, ...]
    """Log groups that the nodes write to; empty without `node_logs`."""

    def group(self, role: str, name: str, statistic: str = "Average") -> cloudwatch.Metric:
        """Return a metric of the Auto Scaling group of a role."""
        return metric("AWS/AutoScaling", name, {"AutoScalingGroupName": self.groups[role]}, statistic)

    def instances(self, role: str, name: str, statistic: str = "Average") -> cloudwatch.Metric:
        """Return a metric that EC2 aggregates over all instances of a role."""
        return metric("AWS/EC2", name, {"AutoScalingGroupName": self.groups[role]}, statistic)

    def agents(self, role: str, name: str, statistic: str = "Average") -> cloudwatch.Metric:
        """Return a metric that the agents publish for all nodes of a role together."""
        return metric(self.namespace, name, {ROLE: role}, statistic)

    def files(self, name: str, statistic: str = "Average") -> cloudwatch.Metric:
        """Return a metric of the shared file system."""
        return metric("AWS/EFS", name, {"FileSystemId": self.file_system}, statistic)

    def gateway(self, nat: str, name: str, statistic: str = "Sum") -> cloudwatch.Metric:
        """Return a metric of the NAT gateway with the ID `nat`."""
        return metric("AWS/NATGateway", name, {"NatGatewayId": nat}, statistic)


def metric(namespace: str, name: str, dimensions: Mapping[str, str], statistic: str) -> cloudwatch.Metric:
    """Return a metric with its statistic over periods of a minute."""
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dict(dimensions),
        statistic=statistic,
        period=Duration.minutes(1),
    )
