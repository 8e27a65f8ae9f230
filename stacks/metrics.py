"""The monitored parts of a cluster, and the names of their metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from stacks.cloudwatch_agent import ROLE
from stacks.config import MASTER, WORKER

# Namespaces of AWS's own metrics.
AUTO_SCALING: Final = "AWS/AutoScaling"
EC2: Final = "AWS/EC2"
EFS: Final = "AWS/EFS"
NAT: Final = "AWS/NATGateway"

# Metrics of an Auto Scaling group that cost nothing, but come only when they are asked for.
GROUP_METRICS: Final = (
    "GroupDesiredCapacity",
    "GroupInServiceInstances",
    "GroupPendingInstances",
    "GroupTerminatingInstances",
)
ROLES: Final = (WORKER, MASTER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One time series, as CloudWatch names it. Texts may be CDK tokens."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    statistic: str = "Average"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricSources:
    """The parts of a cluster that have metrics or logs. Texts may be CDK tokens."""

    region: str
    groups: Mapping[str, str]
    """Names of the Auto Scaling groups, by role."""
    file_system: str
    nat_gateways: tuple[str, ...]
    """Empty where the VPC is not the cluster's own."""
    namespace: str
    """Namespace of the agents' metrics."""
    node_metrics: bool
    gpus: bool
    efa: bool
    log_groups: tuple[str, ...]
    """Log groups that the nodes write to; empty without `node_logs`."""

    def group(self, role: str, name: str, statistic: str = "Average") -> Metric:
        """Return a metric of an Auto Scaling group."""
        return self._of_group(AUTO_SCALING, role, name, statistic)

    def instances(self, role: str, name: str, statistic: str = "Average") -> Metric:
        """Return a metric that EC2 keeps of all instances of an Auto Scaling group together."""
        return self._of_group(EC2, role, name, statistic)

    def agents(self, role: str, name: str, statistic: str = "Average") -> Metric:
        """Return a metric that the agents send of all nodes of a role together."""
        return Metric(namespace=self.namespace, name=name, dimensions={ROLE: role}, statistic=statistic)

    def files(self, name: str, statistic: str = "Average") -> Metric:
        """Return a metric of the shared file system."""
        return Metric(namespace=EFS, name=name, dimensions={"FileSystemId": self.file_system}, statistic=statistic)

    def gateway(self, nat: str, name: str, statistic: str = "Sum") -> Metric:
        """Return a metric of a NAT gateway."""
        return Metric(namespace=NAT, name=name, dimensions={"NatGatewayId": nat}, statistic=statistic)

    def _of_group(self, namespace: str, role: str, name: str, statistic: str) -> Metric:
        dimensions = {"AutoScalingGroupName": self.groups[role]}
        return Metric(namespace=namespace, name=name, dimensions=dimensions, statistic=statistic)
