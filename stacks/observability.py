"""Logs and metrics of the nodes, a dashboard, and alarms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, cast

from aws_cdk import Acknowledgment, Aws, RemovalPolicy, Stack, Validations
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from stacks import dashboard
from stacks.alarms import Alarms, AlarmsProps
from stacks.cloudwatch_agent import AgentSettings, configuration
from stacks.config import MASTER, WORKER, ClusterConfig
from stacks.encryption import admit_logs
from stacks.metrics import GROUP_METRICS, MetricSources
from stacks.user_data import may_have_gpus

# Logical IDs, so that people find the log groups: CloudFormation derives their names from these.
NODE_LOGS: Final = "NodeLogs"
RUN_LOGS: Final = "RunLogs"


def namespace(config: ClusterConfig) -> str:
    """Return the namespace of the nodes' metrics, which is unique to the cluster in its account and region."""
    return f"deepcdk/{config.stack_name}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TelemetryProps:
    config: ClusterConfig
    key: kms.IKey | None
    """The key that encrypts the log groups; None: AWS's own key."""


class Telemetry(Construct):
    """Resources for the nodes' CloudWatch agents: log groups, and a parameter with each role's configuration."""

    def __init__(self, scope: Construct, id: str, props: TelemetryProps) -> None:
        super().__init__(scope, id)
        config = props.config
        self._config = config
        if config.node_logs and props.key:
            admit_logs(props.key)
        self.node_logs = create_log_group(self, NODE_LOGS, config, props.key) if config.node_logs else None
        self.run_logs = create_log_group(self, RUN_LOGS, config, props.key) if config.node_logs else None
        self._parameters: dict[str, ssm.CfnParameter] = {}
        if config.has_agent:
            self._parameters = {role: self._create_parameter(role) for role in (MASTER, WORKER)}

    @property
    def log_groups(self) -> tuple[str, ...]:
        """Return the names of the log groups that the nodes write to; () without `node_logs`."""
        return tuple(group.ref for group in (self.node_logs, self.run_logs) if group)

    def parameter(self, role: str) -> str:
        """Return the name of the SSM parameter with the agent's configuration for a role; "" without an agent."""
        found = self._parameters.get(role)
        return found.ref if found else ""

    def admit(self, roles: Mapping[str, iam.Role]) -> None:
        """Give the nodes' roles, by name, the permissions that their CloudWatch agents need."""
        for name, role in roles.items():
            for statement in self._statements(name):
                role.add_to_policy(statement)
            if self._config.node_metrics:
                Validations.of(role).acknowledge(
                    Acknowledgment(
                        id="AwsSolutions-IAM5[Resource::*]",
                        reason="PutMetricData supports no resources. A condition limits it to the cluster's namespace.",
                    )
                )

    def _create_parameter(self, role: str) -> ssm.CfnParameter:
        config = self._config
        settings = AgentSettings(
            role=role,
            namespace=namespace(config),
            metrics=config.node_metrics,
            interval_s=config.metrics_interval_s,
            gpus=_has_gpus(config, role),
            efa=config.efa and role == WORKER,
            boot_logs=self.node_logs.ref if self.node_logs else "",
            run_logs=self.run_logs.ref if self.run_logs and role == MASTER else "",
            runs=f"{config.efs_mount}/runs",
        )
        return ssm.CfnParameter(
            self,
            f"{role.capitalize()}Agent",
            type="String",
            value=configuration(settings),
            description=f"Configuration of the CloudWatch agent ({role})",
        )

    def _statements(self, role: str) -> list[iam.PolicyStatement]:
        found: list[iam.PolicyStatement] = []
        parameter, groups = self._parameters.get(role), [self.node_logs, self.run_logs if role == MASTER else None]
        if parameter:
            arn = Stack.of(self).format_arn(service="ssm", resource="parameter", resource_name=parameter.ref)
            # The agent reads its configuration at the node's boot.
            found.append(iam.PolicyStatement(actions=["ssm:GetParameter"], resources=[arn]))
        arns = [group.attr_arn for group in groups if group]
        if arns:
            # The agent creates a stream for each log file. The stack creates the groups.
            actions = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
            found.append(iam.PolicyStatement(actions=actions, resources=arns))
        if self._config.node_metrics:
            condition = {"StringEquals": {"cloudwatch:namespace": namespace(self._config)}}
            found.append(
                iam.PolicyStatement(actions=["cloudwatch:PutMetricData"], resources=["*"], conditions=condition)
            )
        return found


def create_log_group(
    scope: Construct, logical_id: str, config: ClusterConfig, key: kms.IKey | None
) -> logs.CfnLogGroup:
    """Create a log group with this logical ID, encrypted with `key`, or with AWS's own key if it is None.

    Events are kept for `log_retention_days`. With `retain_data`, the group stays when the stack is destroyed.
    """
    group = logs.CfnLogGroup(
        scope, logical_id, retention_in_days=config.log_retention_days, kms_key_id=key.key_arn if key else None
    )
    group.override_logical_id(logical_id)
    # Retained even if the first deployment fails, because then the boot logs are needed. They expire by themselves.
    group.apply_removal_policy(RemovalPolicy.RETAIN if config.retain_data else RemovalPolicy.DESTROY)
    return group


def _has_gpus(config: ClusterConfig, role: str) -> bool:
    return may_have_gpus(config.worker_instance_type if role == WORKER else config.master_instance_type)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservabilityProps:
    config: ClusterConfig
    vpc: ec2.IVpc
    groups: Mapping[str, autoscaling.AutoScalingGroup]
    """Auto Scaling groups, by role."""
    file_system: str
    telemetry: Telemetry


class Observability(Construct):
    """The dashboard and the alarms."""

    def __init__(self, scope: Construct, id: str, props: ObservabilityProps) -> None:
        super().__init__(scope, id)
        config = props.config
        self.topics: tuple[str, ...] = ()
        """ARNs of the topics that the alarms notify."""
        if not config.dashboard and not config.alarms:
            return
        for group in props.groups.values():
            publish_group_metrics(group)
        sources = _metric_sources(props)
        alarms: Alarms | None = None
        if config.alarms:
            alarms = Alarms(self, "Alarms", AlarmsProps(config=config, sources=sources))
            self.topics = tuple(alarms.topics)
            for group in props.groups.values():
                alarms.notify_launch_failures(group)
        if config.dashboard:
            cloudwatch.Dashboard(
                self,
                "Dashboard",
                # Dashboards belong to the account, not to the region, so the name contains both.
                dashboard_name=f"{config.stack_name}-{Aws.REGION}",
                widgets=dashboard.rows(sources, [*alarms.created] if alarms else []),
            )


def publish_group_metrics(group: autoscaling.AutoScalingGroup) -> None:
    """Make an Auto Scaling group publish its instance counts once a minute, which is free."""
    cast(autoscaling.CfnAutoScalingGroup, group.node.default_child).metrics_collection = [
        autoscaling.CfnAutoScalingGroup.MetricsCollectionProperty(granularity="1Minute", metrics=list(GROUP_METRICS))
    ]


def _metric_sources(props: ObservabilityProps) -> MetricSources:
    config = props.config
    gateways = [child for child in props.vpc.node.find_all() if isinstance(child, ec2.CfnNatGateway)]
    return MetricSources(
        groups={role: group.auto_scaling_group_name for role, group in props.groups.items()},
        file_system=props.file_system,
        nat_gateways=tuple(gateway.ref for gateway in gateways),
        namespace=namespace(config),
        node_metrics=config.node_metrics,
        gpus=_has_gpus(config, WORKER),
        efa=config.efa,
        log_groups=props.telemetry.log_groups,
    )
