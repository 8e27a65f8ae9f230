"""Buckets of the user's own, which the nodes may read data from."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Acknowledgment, Aws, Validations
from aws_cdk import aws_iam as iam


def admit_reading(role: iam.Role, buckets: Sequence[str]) -> None:
    """Let a role list and read these buckets; not write, and not read older versions."""
    if not buckets:
        return
    arns = [f"arn:{Aws.PARTITION}:s3:::{bucket}" for bucket in buckets]
    # `fab stage-data` lists what lies under a prefix; without it S3 answers 403 for a missing object as well.
    role.add_to_policy(iam.PolicyStatement(actions=["s3:ListBucket"], resources=arns))
    # It reads the objects, whose names nobody knows beforehand.
    role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=[f"{arn}/*" for arn in arns]))
    for bucket in buckets:
        Validations.of(role).acknowledge(
            Acknowledgment(
                id=f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:s3:::{bucket}/*]",
                reason="The wildcard stands for the objects of a bucket that data_buckets names.",
            )
        )
