"""Keys of the shared file system and the run bucket: single values."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig, ConfigError

SSH_CIDR = ("198.18.0.7/32",)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("efs_mount", "/home/ec2-user"),
        ("efs_throughput", "fast"),
        ("efs_throughput_mibps", 3415),
        ("efs_throughput_mibps", -1),
        ("efs_performance", "maxio"),
        ("efs_infrequent_after_days", 8),
        ("efs_archive_after_days", 366),
        ("bucket_expire_versions_days", -1),
        ("bucket_expire_runs_days", 3651),
        ("fsx_capacity_gib", 1300),
        ("fsx_capacity_gib", -2400),
        ("fsx_capacity_gib", 3600),
        ("fsx_deployment", "SCRATCH_1"),
        ("fsx_throughput", 300),
        ("fsx_mount", "/mnt"),
        ("fsx_s3", "bucket/prefix"),
        ("fsx_s3", "s3://Bucket"),
        ("data_buckets", ("s3://mine",)),
        ("data_buckets", ("mine/prefix",)),
        ("data_buckets", ("mine..twice",)),
        ("data_buckets", ("*",)),
        ("data_buckets", ("Mine",)),
        ("checkpoint_buckets", ("mine/prefix",)),
        ("checkpoint_buckets", ("*",)),
        ("kms_key", "new"),
        ("kms_key", "arn:aws:kms:us-east-1:123456789012:alias/mine"),
        ("kms_key", "1234abcd-12ab-34cd-56ef-1234567890ab"),
    ],
)
def test_a_value_against_its_rule_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        ClusterConfig(**{"ssh_cidr": SSH_CIDR, key: value})
    assert caught.value.key == key
    assert caught.value.value == (value[0] if isinstance(value, tuple) else value)


def test_by_default_no_file_and_no_run_is_moved_copied_or_removed_and_throughput_costs_nothing() -> None:
    config = ClusterConfig(ssh_cidr=SSH_CIDR)
    assert (config.efs_throughput, config.efs_performance) == ("bursting", "generalPurpose")
    assert not config.efs_infrequent_after_days + config.efs_archive_after_days
    assert not config.efs_backup
    assert not config.bucket_expire_runs_days
    assert config.retain_data


def test_by_default_what_is_overwritten_in_the_run_bucket_stays_for_a_month() -> None:
    config = ClusterConfig(ssh_cidr=SSH_CIDR)
    assert (config.bucket_versioning, config.bucket_expire_versions_days) == (True, 30)
