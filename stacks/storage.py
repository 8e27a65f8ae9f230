"""The shared file system and the run bucket, with data that outlive the instances."""

from __future__ import annotations

import dataclasses
from typing import Final, cast

from aws_cdk import Acknowledgment, Aws, Duration, RemovalPolicy, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.config import RUNS_PREFIX, ClusterConfig

# These logical IDs must not change when the code is reorganized: a new ID would abandon the old data and start empty.
FILE_SYSTEM: Final = "FileSystem"
RUN_BUCKET: Final = "RunBucket"
# Parts of an incomplete upload are invisible, but cost as much as objects.
_ABORT_UPLOADS_DAYS: Final = 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageProps:
    config: ClusterConfig
    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection
    """Subnets that get a mount target, one per zone."""
    security_group: ec2.ISecurityGroup
    key: kms.IKey | None
    """The key that encrypts the data; None: AWS's own key."""


class Storage(Construct):
    """The shared file system with its mount targets, and the run bucket."""

    def __init__(self, scope: Construct, id: str, props: StorageProps) -> None:
        super().__init__(scope, id)
        # After a failed first deployment there are no data yet, and neither policy leaves resources behind.
        kept = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
        removal = kept if props.config.retain_data else RemovalPolicy.DESTROY
        self.file_system_id = props.config.file_system_id or self._create_file_system(props, removal)
        self.mount_targets = self._create_mount_targets(props)
        self.bucket = self._create_bucket(props, removal)

    @property
    def file_system_host(self) -> str:
        """Return the file system's DNS name. On each node it resolves to the mount target in the node's zone."""
        return f"{self.file_system_id}.efs.{Aws.REGION}.{Aws.URL_SUFFIX}"

    def _create_file_system(self, props: StorageProps, removal: RemovalPolicy) -> str:
        config = props.config
        file_system = efs.CfnFileSystem(
            self,
            "FileSystem",
            encrypted=True,
            kms_key_id=props.key.key_arn if props.key else None,
            performance_mode=config.efs_performance,
            throughput_mode=config.efs_throughput,
            provisioned_throughput_in_mibps=config.efs_throughput_mibps or None,
            lifecycle_policies=_moves(config) or None,
            backup_policy=efs.CfnFileSystem.BackupPolicyProperty(status="ENABLED") if config.efs_backup else None,
            file_system_policy=_mounted_only(),
            file_system_tags=[efs.CfnFileSystem.ElasticFileSystemTagProperty(key="Name", value=config.name)],
        )
        file_system.override_logical_id(FILE_SYSTEM)
        file_system.apply_removal_policy(removal)
        return file_system.ref

    def _create_mount_targets(self, props: StorageProps) -> list[efs.CfnMountTarget]:
        subnets = props.vpc.select_subnets(subnets=props.subnets.subnets).subnets
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

    def _create_bucket(self, props: StorageProps, removal: RemovalPolicy) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "Runs",
            encryption=s3.BucketEncryption.KMS if props.key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=props.key,
            bucket_key_enabled=True if props.key else None,  # otherwise each object causes a billed request to KMS
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            versioned=props.config.bucket_versioning,
            lifecycle_rules=_rules(props.config),
            removal_policy=removal,  # never auto_delete_objects, which takes a Lambda
        )
        cast(s3.CfnBucket, bucket.node.default_child).override_logical_id(RUN_BUCKET)
        Validations.of(bucket).acknowledge(
            Acknowledgment(
                id="AwsSolutions-S1",
                reason="Access logs need a second bucket that outlives the cluster. Only the master uses this bucket.",
            )
        )
        return bucket


def _moves(config: ClusterConfig) -> list[efs.CfnFileSystem.LifecyclePolicyProperty]:
    """Return the policies that move files to EFS's cheaper storage classes, and back at the first access.

    The list is empty if none is configured.
    """
    policy = efs.CfnFileSystem.LifecyclePolicyProperty
    moves = []
    if config.efs_infrequent_after_days:
        moves.append(policy(transition_to_ia=_after(config.efs_infrequent_after_days)))
    if config.efs_archive_after_days:
        moves.append(policy(transition_to_archive=_after(config.efs_archive_after_days)))
    if moves:
        # Training reads each file once per epoch. With this policy, only the first read from the slow class is billed.
        moves.append(policy(transition_to_primary_storage_class="AFTER_1_ACCESS"))
    return moves


def _after(days: int) -> str:
    return f"AFTER_{days}_DAY" if days == 1 else f"AFTER_{days}_DAYS"


def _mounted_only() -> dict[str, object]:
    """Return the policy of the file system: clients that connect through a mount target may use it, and no others.

    Security groups control the access to mount targets.

    To EFS, NFS clients without an IAM identity are anyone (`*`). Root may write, because the boot script does.
    """
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "ThroughMountTargets",
                "Effect": "Allow",
                "Principal": {"AWS": "*"},
                "Action": [
                    "elasticfilesystem:ClientMount",
                    "elasticfilesystem:ClientWrite",
                    "elasticfilesystem:ClientRootAccess",
                ],
                "Condition": {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
            }
        ],
    }


def _rules(config: ClusterConfig) -> list[s3.LifecycleRule]:
    """Return the lifecycle rules of the run bucket.

    They remove incomplete uploads, runs and older versions of the configured ages and, with versioning, delete markers
    without versions.
    """
    found = [
        s3.LifecycleRule(id="BrokenUploads", abort_incomplete_multipart_upload_after=Duration.days(_ABORT_UPLOADS_DAYS))
    ]
    if config.bucket_expire_runs_days:
        age = Duration.days(config.bucket_expire_runs_days)
        found.append(s3.LifecycleRule(id="Runs", prefix=RUNS_PREFIX, expiration=age))
    if config.bucket_versioning and config.bucket_expire_versions_days:
        age = Duration.days(config.bucket_expire_versions_days)
        found.append(s3.LifecycleRule(id="OlderVersions", noncurrent_version_expiration=age))
    if config.bucket_versioning:
        # A delete marker is left when the last version of an object has expired.
        found.append(s3.LifecycleRule(id="DeleteMarkers", expired_object_delete_marker=True))
    return found
