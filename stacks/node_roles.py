"""The IAM roles of the nodes: permissions for the boot and the runs, the user's buckets, and Session Manager."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from aws_cdk import Acknowledgment, Aws, Stack, Tags, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from stacks.config import CLUSTER_TAG, ROLE_TAG, RUNS_PREFIX, WORKER, ClusterConfig
from stacks.storage import RUN_BUCKET

AGENT_ACTIONS: Final = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""The minimum for Session Manager without logging or a key ("Create a custom IAM role for Session Manager")."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeRolesProps:
    config: ClusterConfig
    bucket: s3.IBucket
    key: kms.IKey | None
    """The key that encrypts the bucket; None: AWS's own key."""


class NodeRoles(Construct):
    """The instance roles, with the minimum permissions for the boot and the runs."""

    def __init__(self, scope: Construct, id: str, props: NodeRolesProps) -> None:
        super().__init__(scope, id)
        self.master = iam.Role(self, "Master", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        self.workers = iam.Role(self, "Workers", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        self.key_parameter = self._share_key_of_master(props.config)
        self.handover_parameter = self._hand_over(props.config)
        self._show_consoles(props.config)
        self._share_runs(props.bucket)
        if props.key:
            self._share_key(props.key)

    def _share_key_of_master(self, config: ClusterConfig) -> str:
        """Create the SSM parameter that gives the workers the master's public key; return its name.

        The master may write it, and the workers may read it. On the shared file system, root on any worker could
        replace the key.
        """
        name, arn = self._parameter(
            "AdmittedKey",
            "The public key and the address with which the master logs in to the workers. Written by the master.",
            config,
        )
        self.master.add_to_policy(iam.PolicyStatement(actions=["ssm:PutParameter"], resources=[arn]))
        self.workers.add_to_policy(iam.PolicyStatement(actions=["ssm:GetParameter"], resources=[arn]))
        return name

    def _hand_over(self, config: ClusterConfig) -> str:
        """Create the SSM parameter with the digest of the data a master leaves to its successor; return its name.

        The master may read and write it. The data, which include programs that a master runs, are on the shared file
        system, where root on a worker could change them.
        """
        name, arn = self._parameter(
            "Handover", "SHA-256 of the data that the master leaves to its successor. Written by the master.", config
        )
        actions = ["ssm:GetParameter", "ssm:PutParameter"]
        self.master.add_to_policy(iam.PolicyStatement(actions=actions, resources=[arn]))
        return name

    def _parameter(self, construct_id: str, description: str, config: ClusterConfig) -> tuple[str, str]:
        """Create an SSM parameter with a value, at first `none`, that the master writes; return its name and ARN.

        It has no tags, and its properties must never change: if one changes, CloudFormation writes the template's value
        again (UpdateHandler of aws-cloudformation/aws-cloudformation-resource-providers-ssm).
        """
        parameter = ssm.CfnParameter(self, construct_id, type="String", value="none", description=description)
        for key in (CLUSTER_TAG, *config.tag_values):
            Tags.of(parameter).remove(key)
        arn = Stack.of(self).format_arn(service="ssm", resource="parameter", resource_name=parameter.ref)
        return parameter.ref, arn

    def _show_consoles(self, config: ClusterConfig) -> None:
        """Allow the master to read the console output of the cluster's workers, which contains their SSH host keys."""
        tags = {f"aws:ResourceTag/{CLUSTER_TAG}": config.name, f"aws:ResourceTag/{ROLE_TAG}": WORKER}
        self.master.add_to_policy(
            iam.PolicyStatement(
                actions=["ec2:GetConsoleOutput"],
                resources=[f"arn:{Aws.PARTITION}:ec2:{Aws.REGION}:{Aws.ACCOUNT_ID}:instance/*"],
                conditions={"StringEquals": tags},
            )
        )
        Validations.of(self.master).acknowledge(
            Acknowledgment(
                id="AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:instance/*]",
                reason="The wildcard matches the workers, whose IDs are not known in advance. Tags restrict it.",
            )
        )

    def _share_runs(self, bucket: s3.IBucket) -> None:
        """Allow the master to upload copies of runs: `aws s3 sync` lists the prefix and uploads new and changed files.

        Nodes never read or delete copies. `fab` does that with its user's permissions.
        """
        objects = bucket.arn_for_objects(f"{RUNS_PREFIX}*")
        self.master.add_to_policy(iam.PolicyStatement(actions=["s3:PutObject"], resources=[objects]))
        self.master.add_to_policy(
            iam.PolicyStatement(
                actions=["s3:ListBucket"],
                resources=[bucket.bucket_arn],
                conditions={"StringLike": {"s3:prefix": f"{RUNS_PREFIX}*"}},
            )
        )
        Validations.of(self.master).acknowledge(
            Acknowledgment(
                id=f"AwsSolutions-IAM5[Resource::<{RUN_BUCKET}.Arn>/{RUNS_PREFIX}*]",
                reason="The wildcard matches the objects of the runs, whose names are not known in advance.",
            )
        )

    def allow_publishing(self, topics: Sequence[str]) -> None:
        """Allow the master to publish events of runs to the topics with these ARNs. Does nothing without topics."""
        if topics:
            self.master.add_to_policy(iam.PolicyStatement(actions=["sns:Publish"], resources=[*topics]))

    def _share_key(self, key: kms.IKey) -> None:
        """Allow the master to use the key only for uploads to the bucket.

        A multipart upload, which the AWS CLI uses from 8 MB on, also needs kms:Decrypt: S3 decrypts the parts to join
        them (S3 User Guide, "Multipart upload API and permissions"). Without s3:GetObject, this permits no reads.
        """
        self.master.add_to_policy(
            iam.PolicyStatement(
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=[key.key_arn],
                conditions={"StringEquals": {"kms:ViaService": f"s3.{Aws.REGION}.{Aws.URL_SUFFIX}"}},
            )
        )


def grant_read(role: iam.Role, buckets: Sequence[str]) -> None:
    """Allow a role to list and read these buckets, but not to write to them or to read older versions."""
    # `fab stage-data` reads the objects, and nodes read Horovod's wheel. The names are not known in advance.
    _admit(role, buckets, ["s3:GetObject"], "data_buckets or wheelhouse")


def grant_write(role: iam.Role, buckets: Sequence[str]) -> None:
    """Allow a role to list these buckets, and to read, write and delete their objects."""
    # A checkpoint is uploaded in parts, and a failed upload is aborted. Old checkpoints are deleted.
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    _admit(role, buckets, actions, "checkpoint_buckets")


def _admit(role: iam.Role, buckets: Sequence[str], actions: Sequence[str], setting: str) -> None:
    """Allow a role to list buckets and to use their objects. `setting` is the key in cdk.json, for the reason."""
    if not buckets:
        return
    arns = [f"arn:{Aws.PARTITION}:s3:::{bucket}" for bucket in buckets]
    # Objects under a prefix are listed. Without this permission, S3 also answers 403 for a missing object.
    role.add_to_policy(iam.PolicyStatement(actions=["s3:ListBucket"], resources=arns))
    role.add_to_policy(iam.PolicyStatement(actions=[*actions], resources=[f"{arn}/*" for arn in arns]))
    for bucket in buckets:
        Validations.of(role).acknowledge(
            Acknowledgment(
                id=f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:s3:::{bucket}/*]",
                reason=f"The wildcard matches the objects of a bucket in {setting}.",
            )
        )


def grant_sessions(role: iam.Role) -> None:
    """Give a node's role the permissions that Session Manager needs. The users' own policies decide who may connect."""
    role.add_to_policy(iam.PolicyStatement(sid="SessionManagerAgent", actions=[*AGENT_ACTIONS], resources=["*"]))
    Validations.of(role).acknowledge(
        Acknowledgment(
            id="AwsSolutions-IAM5[Resource::*]",
            reason="The channels of Session Manager have no ARNs that a policy could name.",
        )
    )
