"""Rules that involve several keys of the shared file system and the run bucket."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stacks.cross_key_checks.test_cross_key_checks import keys, problems

EXISTING = "fs-0123456789abcdef0"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"efs_throughput": "elastic"}, []),
        ({"efs_throughput": "provisioned", "efs_throughput_mibps": 128}, []),
        ({"efs_throughput": "provisioned"}, ["efs_throughput_mibps"]),
        ({"efs_throughput_mibps": 128}, ["efs_throughput_mibps"]),
        ({"efs_performance": "maxIO"}, []),
        ({"efs_performance": "maxIO", "efs_throughput": "elastic"}, ["efs_performance"]),
    ],
)
def test_provisioned_throughput_requires_amount_and_vice_versa(values: dict[str, Any], expected: list[str]) -> None:
    assert keys(**values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"efs_infrequent_after_days": 30}, []),
        ({"efs_throughput": "elastic", "efs_infrequent_after_days": 30, "efs_archive_after_days": 90}, []),
        ({"efs_infrequent_after_days": 30, "efs_archive_after_days": 90}, ["efs_archive_after_days"]),
        ({"efs_throughput": "elastic", "efs_archive_after_days": 90}, ["efs_archive_after_days"]),
        (
            {"efs_throughput": "elastic", "efs_infrequent_after_days": 90, "efs_archive_after_days": 90},
            ["efs_archive_after_days"],
        ),
        ({"efs_archive_after_days": 90}, ["efs_archive_after_days", "efs_archive_after_days"]),
    ],
)
def test_archive_requires_elastic_throughput_and_earlier_infrequent_access(
    values: dict[str, Any], expected: list[str]
) -> None:
    assert keys(**values) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("efs_throughput", "elastic"),
        ("efs_backup", True),
        ("efs_infrequent_after_days", 7),
        ("efs_performance", "maxIO"),
        ("efs_throughput_mibps", 128),
        ("efs_archive_after_days", 90),
    ],
)
def test_existing_file_system_accepts_no_further_keys(key: str, value: Any) -> None:
    (problem,) = problems(**{"file_system_id": EXISTING, key: value})
    assert (problem.key, problem.value) == (key, value)
    assert EXISTING in problem.rule
    assert problems(file_system_id=EXISTING) == []


@pytest.mark.parametrize(("length", "most"), [(63, 67), (10, 169)])
def test_number_of_buckets_is_limited_by_policy_size(length: int, most: int) -> None:
    buckets = tuple(f"{n:03}".rjust(length, "b") for n in range(most + 1))
    for key in ("data_buckets", "checkpoint_buckets"):
        assert keys(**{key: buckets[:most]}) == []
        (problem,) = problems(**{key: buckets})
        assert (problem.key, problem.value) == (key, f"{most + 1} buckets")
        taken = 200 + (most + 1) * (length + len('"arn:aws-us-gov:s3:::/*",'))
        assert problem.rule == f"needs about {taken:,} characters in a policy, but IAM's limit is 6,144"
        assert problem.remedy == "list fewer buckets, for example only those in use"


def test_policy_at_size_limit_is_accepted() -> None:
    long = tuple(f"{number:03}".rjust(63, "b") for number in range(67))  # 200 for the statement, 88 for each of these
    assert keys(data_buckets=(*long, "c" * 23)) == []  # and 48 make 6,144
    assert keys(data_buckets=(*long, "c" * 24)) == ["data_buckets"]
    assert keys(data_buckets=(*long, "c" * 23), wheelhouse=f"s3://{long[0]}/wheels") == []
    assert keys(data_buckets=(*long, "c" * 23), wheelhouse="s3://wheels") == ["data_buckets"]
