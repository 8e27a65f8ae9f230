"""The key that encrypts the cluster's data: AWS's own, a new one, or an existing one."""

from __future__ import annotations

import dataclasses
from typing import Final

from aws_cdk import Aws, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.config import ClusterConfig

# Logical id that stays when this code is rearranged: a new key would mean new, empty file systems.
STORAGE_KEY: Final = "StorageKey"
CREATE: Final = "create"
# What a service needs to encrypt with a key. For Auto Scaling see its user guide, "Required AWS KMS key policy for use
# with encrypted volumes".
_USE: Final = (
    "kms:Encrypt",
    "kms:Decrypt",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:DescribeKey",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncryptionProps:
    config: ClusterConfig


class Encryption(Construct):
    """The key of volumes, file systems, bucket and logs; `key` is None where AWS's own keys are used."""

    key: kms.IKey | None = None

    def __init__(self, scope: Construct, id: str, props: EncryptionProps) -> None:
        super().__init__(scope, id)
        wanted = props.config.kms_key
        if wanted == CREATE:
            self.key = self._create(props.config)
        elif wanted:
            self.key = kms.Key.from_key_arn(self, "Existing", wanted)

    def _create(self, config: ClusterConfig) -> kms.Key:
        # Data that is kept is lost without its key, so the key is kept with it.
        kept = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if config.retain_data else RemovalPolicy.DESTROY
        key = kms.Key(
            self,
            "Key",
            description=f"Volumes, file systems, bucket and logs of the deepcdk cluster {config.name}",
            enable_key_rotation=True,
            removal_policy=kept,
            pending_window=None if config.retain_data else Duration.days(7),  # the least that KMS takes
        )
        resource = key.node.default_child
        if isinstance(resource, kms.CfnKey):
            resource.override_logical_id(STORAGE_KEY)
        self._admit_auto_scaling(key)
        return key

    def _admit_auto_scaling(self, key: kms.Key) -> None:
        """Allow Auto Scaling to launch instances with encrypted volumes.

        Its service-linked role is named by a condition and not as principal: KMS refuses a principal that does not
        exist, and in an account without Auto Scaling groups that role exists only after the first one.
        """
        role = (
            f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/aws-service-role/autoscaling.amazonaws.com/"
            "AWSServiceRoleForAutoScaling"
        )
        whose = {
            "StringEquals": {"kms:CallerAccount": Aws.ACCOUNT_ID},
            "ArnEquals": {"aws:PrincipalArn": role},
        }
        key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AutoScalingUsesTheKey",
                principals=[iam.AnyPrincipal()],
                actions=list(_USE),
                resources=["*"],  # in a key's policy: this key
                conditions=whose,
            )
        )
        key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AutoScalingLendsTheKeyToVolumes",
                principals=[iam.AnyPrincipal()],
                actions=["kms:CreateGrant"],
                resources=["*"],
                conditions={**whose, "Bool": {"kms:GrantIsForAWSResource": "true"}},
            )
        )
