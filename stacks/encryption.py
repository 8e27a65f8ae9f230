"""The key that encrypts the cluster's data: AWS's own key, a new one, or an existing one."""

from __future__ import annotations

from typing import Final, cast

from aws_cdk import Aws, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.config import ClusterConfig

# This logical ID must not change when the code is reorganized: a new key would mean new, empty file systems.
STORAGE_KEY: Final = "StorageKey"
CREATE: Final = "create"
# KMS actions that a service needs to encrypt with a key. For Auto Scaling, see "Required AWS KMS key policy for use
# with encrypted volumes" in its user guide.
_USE: Final = (
    "kms:Encrypt",
    "kms:Decrypt",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:DescribeKey",
)


class Encryption(Construct):
    """The key for volumes, file systems, bucket and logs; `key` is None if AWS's own keys are used."""

    key: kms.IKey | None = None

    def __init__(self, scope: Construct, id: str, config: ClusterConfig) -> None:
        super().__init__(scope, id)
        if config.kms_key == CREATE:
            self.key = self._create(config)
        elif config.kms_key:
            self.key = kms.Key.from_key_arn(self, "Existing", config.kms_key)

    def _create(self, config: ClusterConfig) -> kms.Key:
        # Retained data would be lost without its key, so the key is retained too.
        kept = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if config.retain_data else RemovalPolicy.DESTROY
        key = kms.Key(
            self,
            "Key",
            description=f"Volumes, file systems, bucket and logs of the deepcdk cluster {config.name}",
            enable_key_rotation=True,
            removal_policy=kept,
            pending_window=None if config.retain_data else Duration.days(7),  # KMS's minimum
        )
        cast(kms.CfnKey, key.node.default_child).override_logical_id(STORAGE_KEY)
        self._admit_auto_scaling(key)
        return key

    def _admit_auto_scaling(self, key: kms.Key) -> None:
        """Allow Auto Scaling to launch instances with encrypted volumes.

        A condition names its service-linked role. A principal would not work: KMS rejects principals that do not exist,
        and an account has this role only after its first Auto Scaling group.
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


def admit_logs(key: kms.IKey) -> None:
    """Allow CloudWatch Logs to encrypt the stack's log groups with a new key.

    For an existing key, nothing changes: its own policy must allow this (CloudWatch Logs user guide, "Encrypt log data
    in CloudWatch Logs using AWS KMS").
    """
    groups = f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:{Aws.STACK_NAME}-*"
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="LogsUseTheKey",
            principals=[iam.ServicePrincipal(f"logs.{Aws.REGION}.{Aws.URL_SUFFIX}")],
            actions=list(_USE),
            resources=["*"],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        )
    )
