"""The fast shared file system: FSx for Lustre, its security group, and its link to S3."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from aws_cdk import RemovalPolicy, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.config import LUSTRE_PORTS, ClusterConfig

# The newest version of Lustre in FSx. With it, links to S3 work in all deployment types below.
_VERSION: Final = "2.15"
# The directory that is linked to S3. Other directories exist only in the file system.
LINKED: Final = "/data"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LustreProps:
    config: ClusterConfig
    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection
    """Subnets to choose from. The first is used, because a Lustre file system is in one zone."""
    clients: Sequence[ec2.ISecurityGroup]
    """Security groups of the nodes that mount the file system."""
    key: kms.IKey | None
    """The key of a persistent file system; None: AWS's own key. A scratch file system always has AWS's own."""


class Lustre(Construct):
    """A Lustre file system that is deleted with the cluster. Permanent data are in S3."""

    def __init__(self, scope: Construct, id: str, props: LustreProps) -> None:
        super().__init__(scope, id)
        self.security_group = self._create_firewall(props)
        self.file_system = self._create_file_system(props)
        if props.config.fsx_s3:
            self._link(props.config)

    @property
    def source(self) -> str:
        """Return the file system's address for `mount`."""
        return f"{self.file_system.attr_dns_name}@tcp:/{self.file_system.attr_lustre_mount_name}"

    def _create_firewall(self, props: LustreProps) -> ec2.SecurityGroup:
        """Create the security group of the servers, open Lustre's ports between it and the clients, and return it.

        The ports are open in both directions, because servers also connect to clients and to each other.
        """
        group = ec2.SecurityGroup(
            self, "Servers", vpc=props.vpc, description="Lustre from all nodes", allow_all_outbound=False
        )
        for first, last in LUSTRE_PORTS:
            ports = ec2.Port.tcp(first) if first == last else ec2.Port.tcp_range(first, last)
            for peer in (group, *props.clients):
                group.add_ingress_rule(peer, ports, "Lustre")
                # Not the group's own add_egress_rule, which would add AWS's default rule: all outbound traffic.
                ec2.CfnSecurityGroupEgress(
                    group,
                    f"To{peer.node.id}On{first}",
                    group_id=group.security_group_id,
                    destination_security_group_id=peer.security_group_id,
                    ip_protocol="tcp",
                    from_port=first,
                    to_port=last,
                    description="Lustre",
                )
            for client in props.clients:
                client.add_ingress_rule(group, ports, "Lustre servers")
        return group

    def _create_file_system(self, props: LustreProps) -> fsx.CfnFileSystem:
        config = props.config
        persistent = config.fsx_deployment.startswith("PERSISTENT")
        subnet = props.vpc.select_subnets(subnets=props.subnets.subnets).subnets[0]
        file_system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            file_system_type_version=_VERSION,
            storage_capacity=config.fsx_capacity_gib,
            subnet_ids=[subnet.subnet_id],
            security_group_ids=[self.security_group.security_group_id],
            kms_key_id=props.key.key_arn if props.key and persistent else None,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type=config.fsx_deployment,
                per_unit_storage_throughput=config.fsx_throughput or None,
                data_compression_type="LZ4" if config.fsx_compression else "NONE",
            ),
        )
        # It is in the cluster's subnet, which could not be deleted without it.
        file_system.apply_removal_policy(RemovalPolicy.DESTROY)
        # FSx rejects a security group that does not already allow traffic between its servers.
        rules = [child for child in self.security_group.node.children if not isinstance(child, ec2.CfnSecurityGroup)]
        file_system.node.add_dependency(*rules)
        Tags.of(file_system).add("Name", config.name)
        return file_system

    def _link(self, config: ClusterConfig) -> None:
        association = fsx.CfnDataRepositoryAssociation
        everything, written = ["NEW", "CHANGED", "DELETED"], ["NEW", "CHANGED"]
        association(
            self,
            "Link",
            file_system_id=self.file_system.ref,
            file_system_path=LINKED,
            data_repository_path=config.fsx_s3,
            batch_import_meta_data_on_create=True,
            s3=association.S3Property(
                auto_import_policy=association.AutoImportPolicyProperty(events=everything),
                auto_export_policy=association.AutoExportPolicyProperty(events=written) if config.fsx_export else None,
            ),
        )
