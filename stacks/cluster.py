"""The CDK app of a cluster and its CloudFormation stack: network, firewall, storage, roles, nodes, outputs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Final

from aws_cdk import Annotations, App, Aws, CfnOutput, Duration, Fn, Stack, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from cdk_preflight import Preflight
from constructs import Construct

from stacks import gpus, images
from stacks.compute import NodeGroup, NodeGroupProps, Volume
from stacks.config import CLUSTER_TAG, KEPT_IMAGES, MASTER, WORKER, ClusterConfig, ConfigError, Output, feature_flags
from stacks.cross_key_checks import cautions, validate
from stacks.encryption import Encryption
from stacks.endpoints import Endpoints, EndpointsProps
from stacks.firewall import Firewall, FirewallProps
from stacks.flow_logs import FlowLogs, FlowLogsProps
from stacks.lustre import Lustre, LustreProps
from stacks.network import Network
from stacks.node_roles import NodeRoles, NodeRolesProps, grant_read, grant_sessions, grant_write
from stacks.observability import Observability, ObservabilityProps, Telemetry, TelemetryProps
from stacks.storage import Storage, StorageProps
from stacks.user_data import REFERENCES_BYTES, USER_DATA_LIMIT, BootSettings, user_data
from stacks.worker_limits import Limits, LimitsProps

FLAGS: Final = Path(__file__).parents[1] / "cdk.json"
"""File with the CDK's feature flags, so that a project's own cdk.json need not repeat them."""
# Logical IDs of the groups. The nodes' user data sends its signals to them.
MASTER_GROUP: Final = "MasterGroup"
WORKER_GROUP: Final = "WorkerGroup"


def cluster_app(config: ClusterConfig | None = None) -> App:
    """Return an app with a cluster. `config`: None takes the configuration from the CDK's context (cdk.json and -c).

    Exits with a message if the configuration is invalid.
    """
    flags = feature_flags(FLAGS.read_text(encoding="utf-8"))
    app = App(analytics_reporting=False, context=flags)  # cdk.json's own flags take precedence
    Preflight.apply(app)
    try:
        config = config or ClusterConfig.from_context(app.node.get_all_context())
        validate(config, os.environ.get("CDK_DEFAULT_REGION", ""))  # the CDK CLI sets it
        ClusterStack(app, config)
    except ConfigError as error:
        sys.exit(f"deepcdk: {error}")
    return app


class ClusterStack(Stack):
    """The cluster described by a ClusterConfig, in the account and region of the CDK CLI.

    Raises ConfigError if boot_commands are too long. `stacks.cross_key_checks.validate` finds other problems before.
    """

    def __init__(self, scope: Construct, config: ClusterConfig) -> None:
        super().__init__(
            scope,
            config.stack_name,
            description="deepcdk: a cluster for distributed deep learning",
            termination_protection=config.termination_protection,
        )
        self.config = config
        kept = json.loads(scope.node.try_get_context(KEPT_IMAGES) or "{}")
        self.images = {role: images.image(config, role, kept) for role in (MASTER, WORKER)}
        self.login_user = config.login_user or images.login_user(self.images[WORKER].parameter)
        self.network = Network(self, "Network", config)
        self.firewall = Firewall(self, "Firewall", FirewallProps(config=config, vpc=self.network.vpc))
        self.encryption = Encryption(self, "Encryption", config)
        self.endpoints = Endpoints(
            self, "Endpoints", EndpointsProps(config=config, network=self.network, firewall=self.firewall)
        )
        self.storage = Storage(
            self,
            "Storage",
            StorageProps(
                config=config,
                vpc=self.network.vpc,
                subnets=self.network.workers,
                security_group=self.firewall.files,
                key=self.encryption.key,
            ),
        )
        self.lustre = self._create_lustre()
        self.roles = NodeRoles(
            self, "Roles", NodeRolesProps(config=config, bucket=self.storage.bucket, key=self.encryption.key)
        )
        for role in (self.roles.master, self.roles.workers):
            grant_read(role, config.readable_buckets)
        grant_write(self.roles.workers, config.checkpoint_buckets)
        self.flow_logs = FlowLogs(
            self, "FlowLogs", FlowLogsProps(config=config, network=self.network, key=self.encryption.key)
        )
        if not config.opens_ssh_port:
            grant_sessions(self.roles.master)
        self.telemetry = Telemetry(self, "Telemetry", TelemetryProps(config=config, key=self.encryption.key))
        self.telemetry.admit({MASTER: self.roles.master, WORKER: self.roles.workers})
        self.key_pair = ec2.KeyPair.from_key_pair_name(self, "KeyPair", config.key_name)
        self.master = self._create_master()
        self.workers = self._create_workers()
        self.observability = Observability(
            self,
            "Observability",
            ObservabilityProps(
                config=config,
                vpc=self.network.vpc,
                groups={MASTER: self.master.group, WORKER: self.workers.group},
                file_system=self.storage.file_system_id,
                telemetry=self.telemetry,
            ),
        )
        self.roles.allow_publishing(self.observability.topics)
        # The ID "Bounds" is part of logical IDs.
        self.limits = Limits(
            self, "Bounds", LimitsProps(config=config, workers=self.workers.group, master=self.roles.master)
        )
        self._apply_to_all()
        self._emit_outputs()
        for caution in cautions(config):
            Annotations.of(self).add_warning_v2(f"deepcdk:{caution.key}", str(caution))

    def _create_lustre(self) -> Lustre | None:
        if not self.config.fsx_capacity_gib:
            return None
        return Lustre(
            self,
            "Lustre",
            LustreProps(
                config=self.config,
                vpc=self.network.vpc,
                subnets=self.network.workers,
                clients=[self.firewall.master, self.firewall.workers],
                key=self.encryption.key,
            ),
        )

    def _create_master(self) -> NodeGroup:
        config = self.config
        props = self._node_props(MASTER, self.network.master, self.firewall.master)
        return self._create_nodes(
            "Master",
            dataclasses.replace(
                props,
                public_address=config.opens_ssh_port,
                replaced_at_once=1 if config.update_policy == "rolling" else 0,
            ),
        )

    def _create_workers(self) -> NodeGroup:
        config = self.config
        props = self._node_props(WORKER, self.network.workers, self.firewall.workers)
        return self._create_nodes(
            "Workers",
            dataclasses.replace(
                props,
                minimum=0,
                desired=config.workers,
                maximum=config.max_workers,
                least=config.least_workers,
                notice=Duration.seconds(config.termination_notice_s) if config.termination_notice_s else None,
                replaced_at_once=config.update_batch if config.update_policy == "rolling" else 0,
                clustered=config.clustered,
                purchase=config,
                efa=config.efa,
            ),
        )

    def _node_props(
        self, role: str, subnets: ec2.SubnetSelection, security_group: ec2.ISecurityGroup
    ) -> NodeGroupProps:
        """Return the properties that the node groups of both roles have, such as image, network, volume and user data.

        `role` is MASTER or WORKER. Raises ConfigError if boot_commands make the user data too long.
        """
        config = self.config
        is_master = role == MASTER
        instance_type = getattr(config, f"{role}_instance_type")
        group = MASTER_GROUP if is_master else WORKER_GROUP
        return NodeGroupProps(
            role=role,
            name=f"{config.name}-{role}",
            vpc=self.network.vpc,
            subnets=subnets,
            security_group=security_group,
            instance_role=self.roles.master if is_master else self.roles.workers,
            instance_type=instance_type,
            image=self.images[role],
            key_pair=self.key_pair,
            volume=Volume(
                gib=getattr(config, f"{role}_volume_gib"),
                iops=getattr(config, f"{role}_volume_iops"),
                mib_s=getattr(config, f"{role}_volume_mib_s"),
                key=self.encryption.key,
            ),
            user_data=self._boot(role, group, instance_type),
            logical_id=group,
            ready_timeout=Duration.minutes(config.ready_min),
        )

    def _create_nodes(self, id: str, props: NodeGroupProps) -> NodeGroup:
        """Create the nodes of a role. They are launched only after everything that their boot needs exists."""
        nodes = NodeGroup(self, id, props)
        ways_out = [subnet.internet_connectivity_established for subnet in props.subnets.subnets or ()]
        nodes.wait_for(*ways_out, self.endpoints, *self.storage.mount_targets, self.firewall, self.roles)
        return nodes

    def _boot(self, role: str, group: str, instance_type: str) -> str:
        """Return the user data of a role. Raises ConfigError if boot_commands make it too long.

        `group` is the logical ID of the role's Auto Scaling group.
        """
        config = self.config
        text = user_data(
            BootSettings(
                role=role,
                stack=Aws.STACK_NAME,
                group=group,
                region=Aws.REGION,
                file_system=self.storage.file_system_host,
                efs_mount=self.config.efs_mount,
                login_user=self.login_user,
                instance_type=instance_type,
                key_parameter=self.roles.key_parameter,
                handover_parameter=self.roles.handover_parameter if role == MASTER else "",
                compute_capability=gpus.common_capability(config.worker_types if role == WORKER else [instance_type]),
                agent=self.telemetry.parameter(role),
                lustre=self.lustre.source if self.lustre else "",
                lustre_mount=self.config.fsx_mount,
                scratch=config.scratch_mount if role == WORKER else "",
                ranks_have_role=bool(config.data_buckets or config.checkpoint_buckets),
                commands=config.boot_commands if role == WORKER else (),
                ready_s=config.ready_min * 60,
                heeds_notices=role == WORKER and (config.spot or config.termination_notice_s > 0),
            )
        )
        if config.boot_commands and (size := len(text.encode()) + REFERENCES_BYTES) > USER_DATA_LIMIT:
            rule = (
                f"too long: the workers' user data would have {size:,} bytes, but EC2's limit is {USER_DATA_LIMIT:,}; "
                "put the commands into a script, and download the script in a boot command"
            )
            raise ConfigError("boot_commands", None, rule)
        return text

    def _apply_to_all(self) -> None:
        """Apply the configured tags, permissions boundary and termination protection.

        Tags are for all resources, the boundary for all roles, and termination protection for all nodes.
        """
        config = self.config
        Tags.of(self).add(CLUSTER_TAG, config.name)
        for key, value in config.tag_values.items():
            Tags.of(self).add(key, value)
        if config.permissions_boundary:
            policy = iam.ManagedPolicy.from_managed_policy_arn(self, "Boundary", config.permissions_boundary)
            iam.PermissionsBoundary.of(self).apply(policy)
        if config.protect_instances:
            for child in self.node.find_all():
                if isinstance(child, ec2.CfnLaunchTemplate):
                    child.add_property_override("LaunchTemplateData.DisableApiTermination", True)

    def _emit_outputs(self) -> None:
        """Add the outputs directly to the stack: inside a construct, their keys would get a hash.

        Outputs of parts that the cluster does not have are left out.
        """
        values = {
            Output.VPC_ID: self.network.vpc.vpc_id,
            Output.MASTER_GROUP: self.master.group.auto_scaling_group_name,
            Output.WORKER_GROUP: self.workers.group.auto_scaling_group_name,
            Output.FILE_SYSTEM_ID: self.storage.file_system_id,
            Output.EFS_MOUNT: self.config.efs_mount,
            Output.BUCKET: self.storage.bucket.bucket_name,
            Output.LOGIN_USER: self.login_user,
            Output.MAX_WORKERS: str(self.config.max_workers),
            Output.SSH_ACCESS: self.config.ssh_access,
            Output.STOP_POLICY: self.limits.stop.ref,
        }
        if self.lustre:
            values |= {Output.FSX_ID: self.lustre.file_system.ref, Output.FSX_MOUNT: self.config.fsx_mount}
        if self.config.scratch_mount:
            values |= {Output.SCRATCH_MOUNT: self.config.scratch_mount}
        if self.observability.topics:
            values[Output.ALARM_TOPICS] = Fn.join(",", [*self.observability.topics])
        for key, value in values.items():
            CfnOutput(self, key, value=value)
