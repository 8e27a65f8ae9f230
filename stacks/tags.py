"""What applies to every resource of the stack: tags, the permissions boundary, the protection of instances."""

from __future__ import annotations

from aws_cdk import Stack, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam

from stacks.config import CLUSTER_TAG, ClusterConfig


def apply_to_all(stack: Stack, config: ClusterConfig) -> None:
    """Tag, bound and protect everything in the stack as the configuration says."""
    Tags.of(stack).add(CLUSTER_TAG, config.name)
    for key, value in config.tag_values.items():
        Tags.of(stack).add(key, value)
    if config.permissions_boundary:
        policy = iam.ManagedPolicy.from_managed_policy_arn(stack, "Boundary", config.permissions_boundary)
        iam.PermissionsBoundary.of(stack).apply(policy)
    if config.protect_instances:
        for child in stack.node.find_all():
            if isinstance(child, ec2.CfnLaunchTemplate):
                child.add_property_override("LaunchTemplateData.DisableApiTermination", True)
