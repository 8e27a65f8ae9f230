"""The contract between infrastructure and tasks: configuration, names, ports, tags, output keys.

Standard library only, so that `fab --list` imports neither jsii nor boto3.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stacks.config_keys.compute import ComputeKeys
from stacks.config_keys.limits import LimitKeys
from stacks.config_keys.network import NetworkKeys
from stacks.config_keys.observability import ObservabilityKeys
from stacks.config_keys.storage import StorageKeys
from stacks.config_keys.value_checks import ConfigError, coerce, require_match

__all__ = ["ClusterConfig", "ConfigError", "Output"]

# Ports (TCP).
SSH_PORT: Final = 22
NFS_PORT: Final = 2049
# Lustre's own port, and the source ports of its clients and servers.
LUSTRE_PORTS: Final = ((988, 988), (1018, 1023))

# The only prefix of the run bucket that the master may access.
RUNS_PREFIX: Final = "runs/"

# Prefixes that are forbidden for names which CloudFormation makes from the stack's name, a hyphen and more.
_S3: Final = "S3 reserves this prefix"
RESERVED_PREFIXES: Final = {
    "sg-": "EC2 reserves this prefix for the IDs of security groups",
    **dict.fromkeys(("xn--", "sthree-", "amzn-s3-demo-"), _S3),
}

# Addresses in a subnet that instances cannot get: five that AWS reserves, and one for the mount target.
RESERVED_ADDRESSES: Final = 6

# Tags on every instance. The tasks find instances by these tags.
CLUSTER_TAG: Final = "deepcdk:cluster"
ROLE_TAG: Final = "deepcdk:role"
MASTER: Final = "master"
WORKER: Final = "worker"


KEPT_IMAGES: Final = "deepcdk:kept-images"
"""Key of the CDK's context: a JSON object that maps SSM parameters to image IDs, to keep an older image."""
QUALIFIER: Final = "@aws-cdk/core:bootstrapQualifier"
"""Key of the CDK's context that is not a feature flag: the qualifier of the account's bootstrap stack."""
IMAGE_PARAMETER: Final = "deepcdk:image-parameter"
"""Metadata key in a launch template with a kept image: the SSM parameter."""


def feature_flags(cdk_json: str) -> dict[str, Any]:
    """Return the CDK's feature flags from the text of a cdk.json.

    All other keys are left out: the cluster, and any account, image or bootstrap qualifier.
    """
    context = json.loads(cdk_json)["context"]
    return {key: value for key, value in context.items() if key.startswith("@aws-cdk") and key != QUALIFIER}


class Output:
    """Keys of the stack's outputs: facts about a deployed cluster for the tasks."""

    VPC_ID: Final = "VpcId"
    MASTER_GROUP: Final = "MasterGroupName"
    WORKER_GROUP: Final = "WorkerGroupName"
    FILE_SYSTEM_ID: Final = "FileSystemId"
    EFS_MOUNT: Final = "EfsMount"
    BUCKET: Final = "BucketName"
    LOGIN_USER: Final = "LoginUser"
    MAX_WORKERS: Final = "MaxWorkers"
    SSH_ACCESS: Final = "SshAccess"
    STOP_POLICY: Final = "StopPolicyArn"
    # Only if the alarms notify a topic: ARNs, separated by commas.
    ALARM_TOPICS: Final = "AlarmTopicArns"
    # Only with a Lustre file system.
    FSX_ID: Final = "FsxFileSystemId"
    FSX_MOUNT: Final = "FsxMount"
    # Only with scratch_mount.
    SCRATCH_MOUNT: Final = "ScratchMount"


class LimitId:
    """Logical IDs of the alarms that stop the workers, of their scaling policy, and of the budget's queue."""

    IDLE: Final = "GuardIdle"
    HOURS: Final = "GuardHours"
    BUDGET: Final = "GuardBudget"
    POLICY: Final = "GuardStop"
    QUEUE: Final = "GuardBudgetSpent"
    RENEWAL: Final = "GuardBudgetRenewal"
    """This alarm stops no workers. It keeps the message that the budget is spent in its queue."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig(NetworkKeys, ComputeKeys, StorageKeys, LimitKeys, ObservabilityKeys):
    """The validated configuration of one cluster. `cdk.json`, context.cluster, has the same keys."""

    name: str = "deepcdk"
    """Name of the cluster and of its stack. One account may have several clusters with different names."""

    def __post_init__(self) -> None:
        rule = "1 to 32 characters a-z, 0-9 and -, starting with a letter and not ending with -"
        require_match(self, "name", r"[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?", rule)
        for prefix, why in RESERVED_PREFIXES.items():
            if f"{self.name}-".startswith(prefix):
                raise ConfigError(
                    "name", self.name, f"names of resources would begin with {prefix}: {why}; choose another name"
                )
        self.check_compute()
        self.check_storage()
        self.check_limits()
        self.check_observability()
        self.check_network()

    @property
    def stack_name(self) -> str:
        """Return the name of the CloudFormation stack."""
        return self.name

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> ClusterConfig:
        """Build the configuration from a whole CDK context.

        `context["cluster"]` contains the values. A top-level key with the same name overrides a value (`cdk deploy -c
        workers=4`). Top-level values are strings and are converted strictly. The CDK's own keys contain a colon or a
        slash. Raises ConfigError for an unknown key (with the nearest known key) or an invalid value.
        """
        cluster = context.get("cluster", {})
        if not isinstance(cluster, Mapping):
            raise ConfigError("", None, "context.cluster must be a JSON object")
        given = dict(cluster)
        given.update({k: v for k, v in context.items() if k != "cluster" and ":" not in k and "/" not in k})
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for key, value in given.items():
            if key not in fields:
                (near,) = difflib.get_close_matches(key, fields, n=1, cutoff=0)
                raise ConfigError(key, value, f"unknown key; did you mean {near}?")
        values = {key: coerce(key, value, str(fields[key].type)) for key, value in given.items()}
        return cls(**values)

    @classmethod
    def from_file(cls, path: Path, overrides: Mapping[str, str] | None = None) -> ClusterConfig:
        """Build the configuration from a cdk.json and `key=value` overrides, as app.py does through the CDK.

        Raises ConfigError, also if the file is missing or not a JSON object.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            context = document.get("context", {}) if isinstance(document, dict) else None
        except FileNotFoundError:
            raise ConfigError(
                "",
                str(path),
                "no such file; change to the directory of your project, or create one with `deepcdk init DIR`",
            ) from None
        except OSError as error:
            raise ConfigError("", str(path), f"cannot be read: {error.strerror}; make it a readable file") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError("", str(path), f"is not valid JSON: {error}") from None
        if not isinstance(context, dict):
            raise ConfigError("", str(path), "must be a JSON object, and so must its key context")
        return cls.from_context({**context, **(overrides or {})})
