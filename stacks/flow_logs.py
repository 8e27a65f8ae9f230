"""The VPC's flow logs, to a log group or to a bucket."""

from __future__ import annotations

import dataclasses
from typing import Final

from aws_cdk import Acknowledgment, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.config import ClusterConfig
from stacks.config_keys.network import FLOW_LOGS_TO_GROUP, NO_FLOW_LOGS
from stacks.encryption import admit_logs
from stacks.network import Network
from stacks.observability import create_log_group

# Logical ID, so that people find the log group: CloudFormation derives its name from this.
FLOW_LOGS: Final = "FlowLogs"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowLogsProps:
    config: ClusterConfig
    network: Network
    key: kms.IKey | None = None


class FlowLogs(Construct):
    """The flow logs as `flow_logs` configures them: of the cluster's own VPC, or of its subnets in an existing VPC."""

    def __init__(self, scope: Construct, id: str, props: FlowLogsProps) -> None:
        super().__init__(scope, id)
        config = props.config
        if config.flow_logs == NO_FLOW_LOGS:
            return
        if config.flow_logs == FLOW_LOGS_TO_GROUP:
            if props.key and not config.node_logs:  # with node_logs, the key already allows CloudWatch Logs
                admit_logs(props.key)
            group = create_log_group(self, FLOW_LOGS, config, props.key)
            role = self._create_role(group)
            self._watch(props.network, config, log_group_name=group.ref, role_arn=role.role_arn)
        else:
            self._watch(props.network, config, bucket_arn=config.flow_logs)

    def _watch(
        self,
        network: Network,
        config: ClusterConfig,
        *,
        log_group_name: str | None = None,
        role_arn: str | None = None,
        bucket_arn: str | None = None,
    ) -> None:
        """Create one flow log for the VPC if the stack creates it, or one for each of the cluster's subnets.

        The logs are written to a log group with a role, or to a bucket.
        """
        logged = [("Vpc", "VPC", network.vpc.vpc_id)]
        if config.vpc_id:
            ids = dict.fromkeys((*config.public_subnet_ids, *config.private_subnet_ids))
            logged = [(f"Subnet{number}", "Subnet", id) for number, id in enumerate(ids, start=1)]
        for name, kind, id in logged:
            ec2.CfnFlowLog(
                self,
                name,
                resource_type=kind,
                resource_id=id,
                traffic_type="ALL",
                log_destination_type="s3" if bucket_arn else "cloud-watch-logs",
                log_destination=bucket_arn,
                log_group_name=log_group_name,
                deliver_logs_permission_arn=role_arn,
            )

    def _create_role(self, group: logs.CfnLogGroup) -> iam.Role:
        """Create the role of VPC flow logs, which may write only to this group, and return it."""
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("vpc-flow-logs.amazonaws.com"))
        role.add_to_policy(
            iam.PolicyStatement(
                sid="WriteFlowLogs",
                actions=["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
                resources=[group.attr_arn],  # it ends in :*, which matches the group's streams
            )
        )
        Validations.of(role).acknowledge(
            Acknowledgment(
                id=f"AwsSolutions-IAM5[Resource::<{FLOW_LOGS}.Arn>]",
                reason="The wildcard matches the streams of this one log group, which AWS names.",
            )
        )
        return role
