"""Permissions of a node's role outside its own cluster: the user's buckets, and Session Manager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Acknowledgment, Aws, Validations
from aws_cdk import aws_iam as iam

AGENT_ACTIONS: Final = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""The minimum for Session Manager without logging or a key ("Create a custom IAM role for Session Manager")."""


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
