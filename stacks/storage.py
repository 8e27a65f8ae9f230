"""Where data outlives instances: the shared file system and the run bucket."""

from __future__ import annotations

import dataclasses
from typing import Final

from aws_cdk import Acknowledgment, Aws, RemovalPolicy, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.config import ClusterConfig

# Logical ids that stay when this code is rearranged: a new id would leave the old data behind and start empty.
FILE_SYSTEM: Final = "FileSystem"
RUN_BUCKET: Final = "RunBucket"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageProps:
    config: ClusterConfig
    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection
    """Subnets that get a mount target, one a zone."""
    security_group: ec2.ISecurityGroup


class Storage(Construct):
    """Own the shared file system with its mount targets, and the run bucket."""

    def __init__(self, scope: Construct, id: str, props: StorageProps) -> None:
        super().__init__(scope, id)
        # A failed first deployment has no data yet, and leaves nothing behind under either policy.
        kept = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
        removal = kept if props.config.retain_data else RemovalPolicy.DESTROY
        self.file_system_id = props.config.file_system_id or self._create_file_system(props.config.name, removal)
        self.mount_targets = self._create_mount_targets(props)
        self.bucket = self._create_bucket(removal)

    @property
    def file_system_host(self) -> str:
        """Return the file system's DNS name, which leads each node to the mount target in its own zone."""
        return f"{self.file_system_id}.efs.{Aws.REGION}.{Aws.URL_SUFFIX}"

    def _create_file_system(self, name: str, removal: RemovalPolicy) -> str:
        file_system = efs.CfnFileSystem(
            self,
            "FileSystem",
            encrypted=True,
            performance_mode="generalPurpose",
            throughput_mode="bursting",  # costs nothing beyond the storage; `elastic` bills every byte of every epoch
            file_system_tags=[efs.CfnFileSystem.ElasticFileSystemTagProperty(key="Name", value=name)],
        )
        file_system.override_logical_id(FILE_SYSTEM)
        file_system.apply_removal_policy(removal)
        return file_system.ref

    def _create_mount_targets(self, props: StorageProps) -> list[efs.CfnMountTarget]:
        subnets = props.vpc.select_subnets(subnet_type=props.subnets.subnet_type).subnets
        return [
            efs.CfnMountTarget(
                self,
                f"MountTarget{index}",
                file_system_id=self.file_system_id,
                subnet_id=subnet.subnet_id,
                security_groups=[props.security_group.security_group_id],
            )
            for index, subnet in enumerate(subnets, start=1)
        ]

    def _create_bucket(self, removal: RemovalPolicy) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "Runs",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=removal,  # never auto_delete_objects: it takes a Lambda
        )
        resource = bucket.node.default_child
        if isinstance(resource, s3.CfnBucket):
            resource.override_logical_id(RUN_BUCKET)
        Validations.of(bucket).acknowledge(
            Acknowledgment(
                id="AwsSolutions-S1",
                reason="Access logs want a second bucket that outlives the cluster; the master alone uses this one.",
            )
        )
        return bucket
