"""Invalid values for each key of `cdk.json`, regardless of other keys."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st


def _outside(low: float, high: float) -> st.SearchStrategy[Any]:
    return st.one_of(st.integers(max_value=int(low) - 1), st.integers(min_value=int(high) + 1))


_TEXT: Final = st.sampled_from(["", " ", "x y", "$(id)", "../up", "é", "a" * 300])
_TYPE: Final = st.sampled_from(["", "c5", "C5.large", "c5.2xlarge; id", " c5.large"])
_MOUNT: Final = st.sampled_from(
    ["", "mnt", "/", "/mnt", "/etc/x", "/var", "/a b", "/mnt/../etc", "/home/me", "/mnt/x/", f"/mnt/{'x' * 251}"]
)
_IMAGE: Final = st.sampled_from(["my/image", "/a b", "ami-1", "/x;id", "/a//b", "/a/", "/a" * 16, f"/{'a' * 1011}"])
_AMI: Final = st.sampled_from(["ami-", "ami-XYZ12345", "i-0123456789abcdef0", "AMI-0123456789abcdef0"])
_DEVICE: Final = st.sampled_from(["xvda", "/dev/", "/dev/XVDA", "/dev/a/b", "/dev/xvda "])
_NETWORK: Final = st.sampled_from(
    ["10.0.0.0", "10.0.0.1/16", "10.0.0.0/33", "300.0.0.0/16", "::/0", "x", "10.0.0.0/016"]
)
_NO_VPC: Final = (
    *("10.0.0.0/8", "10.0.0.0/29", "10.0.0.0/15"),
    *("0.1.0.0/16", "127.0.0.0/16", "169.254.0.0/16", "169.254.7.0/24", "224.0.0.0/16", "8.8.0.0/16"),
)
_MAIL: Final = st.sampled_from(
    ["ops", "ops@host", "a b@example.com", "a@b..com", "é@example.com", "a.@example.com", f"{'a' * 65}@example.com"]
)
_SUBNETS: Final = st.sampled_from(
    ["subnet", "subnet-X", ["subnet-0123456789abcdef0"] * 2, [f"subnet-0123456789abcdef{n}" for n in range(7)]]
)
_BUCKETS: Final = st.sampled_from(["s3://records", "records/2012", "Records", "a..b", "x", "10.0.0.7"])
_NOT_A_BOOL: Final[st.SearchStrategy[Any]] = st.sampled_from(["yes", "True", "1", 1, 0, None, []])

# CloudFormation would turn these into names that EC2 or S3 reserves.
RESERVED: Final = ("sg", "sg-train", "xn--lab", "sthree", "sthree-lab", "amzn-s3-demo", "amzn-s3-demo-x")

WRONG: Final[dict[str, st.SearchStrategy[Any]]] = {
    "name": st.sampled_from(["", "Upper", "1st", "ends-", "a" * 33, "under_score", "é", "a b", *RESERVED]),
    "ssh_access": st.sampled_from(["", "Port", "none"]),
    "ssh_cidr": st.one_of(
        _NETWORK.filter(lambda text: text != "10.0.0.0"), st.just(["8.0.0.0/7"]), st.just("0.0.0.0/0")
    ),
    "ssh_prefix_lists": st.sampled_from(["pl-", "pl-XYZ", "list", ["pl-0123456789abcdef0"] * 2]),
    "vpc_cidr": st.one_of(_NETWORK, st.sampled_from(_NO_VPC)).filter(lambda text: text != "10.0.0.0"),
    "availability_zones": _outside(1, 6),
    "zones": st.sampled_from(["us-east-1", "a", "us-west-2-lax-1a", "use1-az1", "US-EAST-1A", ["us-east-1a"] * 2]),
    "nat_gateways": st.sampled_from(["", "two", "0"]),
    "vpc_endpoints": st.sampled_from(["s4", "S3", "ssm,ssm", "ecr.api"]),
    "flow_logs": st.sampled_from(
        ["", "on", "s3://bucket", "arn:aws:s3:::A", "arn:aws:s3:::a..b", "arn:aws:s3:::logs/AWSLogs/x"]
    ),
    "vpc_id": st.sampled_from(["vpc", "vpc-", "vpc-XYZ12345", "subnet-0123456789abcdef0"]),
    "public_subnet_ids": _SUBNETS,
    "private_subnet_ids": _SUBNETS,
    "key_name": st.sampled_from(["", "é", "a" * 256, "new\nline", " mine", "mine ", " "]),
    "workers": _outside(0, 1000),
    "max_workers": _outside(1, 1000),
    "worker_instance_type": _TYPE,
    "worker_alternatives": _TYPE.filter(str.strip).filter(lambda text: text == text.strip()),
    "master_instance_type": _TYPE,
    "on_demand_workers": _outside(0, 1000),
    "spot_allocation": _TEXT,
    "on_demand_allocation": _TEXT,
    "capacity_reservation": st.sampled_from(["cr-", "cr-XYZ12345", "arn:aws:ec2:x", "block"]),
    "worker_image_parameter": _IMAGE,
    "master_image_parameter": _IMAGE,
    "worker_image_id": _AMI,
    "master_image_id": _AMI,
    "worker_root_device": _DEVICE,
    "master_root_device": _DEVICE,
    "login_user": st.sampled_from(["Root", "1user", "a b", "a" * 33, "é", "x;id"]),
    **{f"{role}_volume_gib": _outside(8, 65536) for role in ("worker", "master")},
    **{f"{role}_volume_iops": _outside(3000, 80000) for role in ("worker", "master")},
    **{f"{role}_volume_mib_s": _outside(125, 2000) for role in ("worker", "master")},
    "scratch_mount": _MOUNT.filter(bool),
    "termination_notice_s": st.one_of(st.integers(1, 29), _outside(0, 7200)),
    "ready_timeout_min": _outside(0, 720),
    "boot_commands": st.sampled_from([[" "], ["a\nb"], ["echo 'a"], ["\x07"]]),
    "capacity_policy": st.sampled_from(["", "some", "at-least", "at-least 0", "at-least -1", "at-least 10000"]),
    "update_policy": _TEXT,
    "update_batch": _outside(1, 100),
    "fsx_capacity_gib": st.one_of(st.integers(1, 1199), st.sampled_from([1201, 3600, -1, 1_000_001])),
    "fsx_deployment": st.sampled_from(["", "SCRATCH_1", "scratch_2"]),
    "fsx_throughput": st.sampled_from([-1, 1, 49, 126, 2000]),
    "fsx_mount": _MOUNT,
    "fsx_s3": st.sampled_from(["s3://", "bucket", "s3://Upper", "s3://ok/a b", "s3://a..b", f"s3://ok/{'a' * 1020}"]),
    "efs_mount": _MOUNT,
    "file_system_id": st.sampled_from(["fs-", "fs-XYZ12345", "efs"]),
    "efs_throughput": _TEXT,
    "efs_throughput_mibps": _outside(0, 3414),
    "efs_performance": _TEXT,
    "efs_infrequent_after_days": st.sampled_from([-1, 2, 31, 366]),
    "efs_archive_after_days": st.sampled_from([-1, 2, 31, 366]),
    "bucket_expire_versions_days": _outside(0, 3650),
    "bucket_expire_runs_days": _outside(0, 3650),
    "data_buckets": _BUCKETS,
    "checkpoint_buckets": _BUCKETS,
    "wheelhouse": st.sampled_from(
        [
            "wheels",
            "./wheels",
            "http://wheels.example",
            "https://user:password@wheels.example",
            "s3://",
            "/a b",
            "/$(id)",
        ]
    ),
    "kms_key": st.sampled_from(["new", "alias/mine", "arn:aws:kms:us-east-1:123456789012:alias/mine"]),
    "permissions_boundary": st.sampled_from(
        [
            *("boundary", "arn:aws:iam::1:policy/x", "arn:aws:iam::123456789012:role/x"),
            *("arn:aws:iam::123456789012:policy/", f"arn:aws:iam::123456789012:policy/{'x' * 129}"),
        ]
    ),
    "tags": st.sampled_from(
        [
            *("team", "=x", "aws:x=1", "deepcdk:x=1", "Name=x", ["a=1", "a=2"], "k=é", f"{'k' * 128}=1"),
            ["Team=a", "team=b"],
            [f"{n:0100}={'v' * 128}" for n in range(36)],
        ]
    ),
    "idle_minutes": st.one_of(st.sampled_from([1, 5, 12, 1435]), _outside(0, 1430)),
    "max_replacements_per_hour": _outside(0, 100),
    "idle_cpu_percent": st.sampled_from([-1, 100.1, 1000]),
    "max_hours": st.sampled_from([-1, 0.1, 0.51, 24.5, 169]),
    "budget_usd": st.sampled_from([-1, 2e9, 1e-7, 0.009]),
    "budget_scope": _TEXT,
    "budget_emails": st.one_of(_MAIL, st.just([f"a{n}@example.com" for n in range(11)])),
    "log_retention_days": st.sampled_from([0, -1, 2, 31]),
    "metrics_interval_s": _outside(1, 3600),
    "alarm_emails": st.one_of(_MAIL, st.just([f"a{n}@example.com" for n in range(101)])),
    "alarm_topic": st.sampled_from(["topic", "arn:aws:sns:us-east-1:1:x", "arn:aws:sqs:us-east-1:123456789012:x"]),
    **dict.fromkeys(
        (
            *("ssh_from_anywhere", "allow_unknown_instance_types", "placement_group", "efa"),
            *("spot", "capacity_rebalance", "capacity_block"),
            *("fsx_compression", "fsx_export", "efs_backup", "bucket_versioning", "retain_data"),
            *("termination_protection", "protect_instances", "then_stop", "budget_stops_workers"),
            *("node_logs", "node_metrics", "dashboard", "alarms"),
        ),
        _NOT_A_BOOL,
    ),
}
"""Values of each key that are wrong whatever the others are, but for `ssh_cidr`, where nothing is said twice."""
