"""Entries that a configuration could break, which validation refuses before anything is composed."""

from __future__ import annotations

from typing import Any, Final

from tests.refusals.case import Case, Values


def _key(entry: str, key: str, wrong: Any, right: Any, **others: Any) -> Case[Values]:
    """Return the case of a key that has a wrong value and a right one beside the same others."""
    return Case(entry, {key: wrong, **others}, key, {key: right, **others})


_LONG: Final = tuple(f"{n:03}".rjust(63, "b") for n in range(68))

_EXISTING: Final = {"vpc_id": "vpc-0123456789abcdef0", "private_subnet_ids": ["subnet-0123456789abcdef0"]}
_PUBLIC: Final = [f"subnet-1{n:016x}" for n in range(201)]
_TOPIC: Final = "arn:aws:sns:{}:123456789012:words"

CASES: Final[tuple[Case[Values], ...]] = (
    _key("EC2-04", "name", "sg-train", "train-sg"),
    _key("EC2-04", "name", "sg", "sgs"),
    *(
        _key("EC2-12", "vpc_cidr", wrong, "10.0.0.0/16")
        for wrong in ("169.254.0.0/16", "0.0.0.0/16", "127.0.0.0/16", "224.0.0.0/16")
    ),
    _key("EC2-30", "worker_volume_iops", 50_001, 50_000, worker_volume_gib=100),
    _key("EC2-31", "worker_volume_mib_s", 1000, 750, worker_volume_iops=3000),
    _key("EC2-39", "protect_instances", True, False, spot=True),
    _key("EC2-47", "tags", ["aws:owner=me"], ["owner=me"]),
    _key("EC2-53", "key_name", " deepcdk ", "deep cdk"),
    _key("EC2-57", "public_subnet_ids", _PUBLIC, _PUBLIC[:6], **_EXISTING),
    *(
        _key(entry, "alarm_topic", _TOPIC.format("eu-west-1"), _TOPIC.format("us-east-1"), alarms=True)
        for entry in ("AS-16", "CW-11")
    ),
    _key("AS-32", "ready_timeout_min", 90, 60, update_policy="rolling"),
    _key("SNS-07", "alarm_emails", ["ops at example.com"], ["ops@example.com"], alarms=True),
    _key("BUD-06", "budget_emails", ["ops"], ["ops@example.com"], budget_usd=5),
    _key("BUD-07", "budget_emails", ["ops@example.com"] * 2, ["ops@example.com"], budget_usd=5),
    _key("EFS-02", "efs_throughput_mibps", 64, 0, efs_throughput="bursting"),
    _key("FSX-01", "fsx_capacity_gib", 3600, 2400),
    _key("FSX-02", "fsx_throughput", 200, 250, fsx_capacity_gib=1200, fsx_deployment="PERSISTENT_2"),
    *(_key("S3-01", "name", f"{prefix}lab", "lab") for prefix in ("xn--", "sthree-", "amzn-s3-demo-")),
    _key("S3-04", "data_buckets", ["10.0.0.7"], ["10.0.0.7.runs"]),
    _key("IAM-01", "data_buckets", _LONG, _LONG[:-1]),
    _key(
        "IAM-17",
        "permissions_boundary",
        "arn:aws:iam::111122223333:role/boundary",
        "arn:aws:iam::111122223333:policy/boundary",
    ),
    _key("IAM-19", "tags", ["Team=a", "team=b"], ["Team=a", "teams=b"]),
)
