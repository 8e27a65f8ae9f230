"""The clusters that people ask for, by name: the values in `cdk.json`, and the parts of the template that differ.

Each is checked with a snapshot, the invariants, cfn-lint and cdk-nag, and on real hosts of the embedded cloud.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from stacks.config import ClusterConfig

SSH_CIDR: Final = ("198.18.0.7/32",)
AL2023: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-"
DEEP_LEARNING: Final = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"
REGIONS: Final = ("us-east-1", "us-west-2", "eu-west-1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """One named cluster."""

    values: dict[str, Any]
    """Values as in context.cluster of cdk.json; `ssh_cidr` is added if a port is open and no network is given."""
    image: str
    """SSM parameter of the workers' image."""
    interfaces: int = 1
    """Network interfaces of a worker."""
    placed: bool = False
    """Whether the workers are in a placement group."""
    gpus: bool = False
    regions: tuple[str, ...] = REGIONS
    """Regions in which AWS offers everything that the cluster needs, so that cfn-lint finds nothing."""

    def config(self, **changes: Any) -> ClusterConfig:
        """Return the configuration with some values changed."""
        return ClusterConfig.from_context({"cluster": {**self.settings, **changes}})

    @property
    def settings(self) -> dict[str, Any]:
        """Return all values that are not defaults."""
        opens = self.values.get("ssh_access", "port") == "port"
        return {"ssh_cidr": SSH_CIDR, **self.values} if opens else self.values

    @property
    def words(self) -> list[str]:
        """Return the values as options of the CDK CLI."""
        return [word for key, value in self.settings.items() for word in ("-c", f"{key}={_text(value)}")]


def _text(value: Any) -> str:
    """Return a value in command-line form."""
    if isinstance(value, tuple):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)


CLUSTERS: Final[dict[str, Cluster]] = {
    "default CPU": Cluster(values={}, image=AL2023 + "x86_64"),
    # fast.ai's record of 2018. EC2 no longer lists the type, and AWS's current image has no driver for its GPUs: both
    # must be reported. docs/compute.md shows these values.
    "16 x p3.16xlarge": Cluster(
        values={
            "name": "imagenet",
            "workers": 16,
            "max_workers": 16,
            "worker_instance_type": "p3.16xlarge",
            "allow_unknown_instance_types": True,
            "idle_cpu_percent": 0.8,
            "worker_image_parameter": "/imagenet/volta-image",
            "worker_volume_gib": 300,
            "placement_group": True,
        },
        image="/imagenet/volta-image",
        placed=True,
        gpus=True,
    ),
    "p5 with EFA": Cluster(
        values={"name": "p5", "worker_instance_type": "p5.48xlarge", "efa": True},
        image=DEEP_LEARNING,
        interfaces=33,
        placed=True,
        gpus=True,
        regions=("us-east-1", "us-west-2"),
    ),
    "spot mixed": Cluster(
        values={
            "name": "spot",
            "workers": 4,
            "worker_instance_type": "g5.2xlarge",
            "worker_alternatives": ("g5.4xlarge", "g5.8xlarge"),
            "spot": True,
            "on_demand_workers": 1,
            "spot_allocation": "price-capacity-optimized",
            "capacity_rebalance": True,
            "termination_notice_s": 120,
        },
        image=DEEP_LEARNING,
        gpus=True,
    ),
    "existing VPC": Cluster(
        values={
            "name": "guest",
            "vpc_id": "vpc-0123456789abcdef0",
            "vpc_cidr": "10.4.0.0/20",
            "public_subnet_ids": ("subnet-0aaaaaaaaaaaaaaa1",),
            "private_subnet_ids": ("subnet-0bbbbbbbbbbbbbbb1", "subnet-0bbbbbbbbbbbbbbb2"),
            "availability_zones": 2,
        },
        image=AL2023 + "x86_64",
    ),
    "no SSH": Cluster(values={"name": "closed", "ssh_access": "session-manager"}, image=AL2023 + "x86_64"),
    "Graviton CPU": Cluster(
        values={"name": "graviton", "worker_instance_type": "c7g.4xlarge", "master_instance_type": "t4g.medium"},
        image=AL2023 + "arm64",
    ),
    "everything": Cluster(
        values={
            "name": "everything",
            "availability_zones": 2,
            "nat_gateways": "one-per-zone",
            "vpc_endpoints": ("s3", "ssm", "ecr", "logs"),
            "flow_logs": "log-group",
            "ssh_cidr": ("198.18.0.7/32", "198.18.64.0/24"),
            "worker_instance_type": "c5d.4xlarge",
            "worker_volume_gib": 200,
            "worker_volume_iops": 6000,
            "worker_volume_mib_s": 500,
            "scratch_mount": "/mnt/scratch",
            "termination_notice_s": 300,
            "capacity_policy": "at-least 1",
            "update_policy": "rolling",
            "kms_key": "create",
            "efs_throughput": "elastic",
            "efs_infrequent_after_days": 30,
            "efs_archive_after_days": 90,
            "efs_backup": True,
            "bucket_versioning": True,
            "bucket_expire_versions_days": 30,
            "bucket_expire_runs_days": 365,
            "data_buckets": ("records", "other.records"),
            "checkpoint_buckets": ("checkpoints", "records"),
            "wheelhouse": "s3://wheels/horovod",
            "fsx_capacity_gib": 1200,
            "fsx_deployment": "PERSISTENT_2",
            "fsx_throughput": 125,
            "fsx_compression": True,
            "fsx_s3": "s3://records/imagenet",
            "fsx_export": True,
            "permissions_boundary": "arn:aws:iam::123456789012:policy/boundary",
            "termination_protection": True,
            "protect_instances": True,
            "tags": ("team=vision", "cost center=42"),
            "idle_minutes": 30,
            "max_hours": 12.0,
            "budget_usd": 500.0,
            "budget_scope": "cluster",
            "budget_emails": ("ops@example.com",),
            "node_logs": True,
            "node_metrics": True,
            "dashboard": True,
            "alarms": True,
            "alarm_emails": ("ops@example.com",),
        },
        image=AL2023 + "x86_64",
    ),
}
