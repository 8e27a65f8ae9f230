"""Resources that outlive a stack: derived from the deployment and shown with their ids."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.aws.client import Aws
from cluster.deploy import retained_data
from cluster.deploy.retained_data import DataResource, check_deletable, describe_fate, describe_remains, parse
from cluster.errors import DeepcdkError

TEMPLATE = {
    "Resources": {
        "FileSystem": {"Type": "AWS::EFS::FileSystem", "DeletionPolicy": "RetainExceptOnCreate"},
        "RunBucket": {"Type": "AWS::S3::Bucket", "DeletionPolicy": "Delete"},
        "Role": {"Type": "AWS::IAM::Role", "DeletionPolicy": "Retain"},
        "Vpc": {"Type": "AWS::EC2::VPC"},
    }
}


def there(name: str, type_name: str, physical_id: str, status: str = "CREATE_COMPLETE") -> dict[str, Any]:
    return {
        "LogicalResourceId": name,
        "ResourceType": type_name,
        "PhysicalResourceId": physical_id,
        "ResourceStatus": status,
    }


def holder(noun: str, kept: bool) -> DataResource:
    return DataResource(noun=noun, type="", physical_id="id", kept=kept)


def test_data_and_retained_resources_are_found_with_ids() -> None:
    found = parse(
        TEMPLATE,
        [
            there("FileSystem", "AWS::EFS::FileSystem", "fs-1"),
            there("RunBucket", "AWS::S3::Bucket", "runs"),
            there("Role", "AWS::IAM::Role", "role"),
            there("Vpc", "AWS::EC2::VPC", "vpc-1"),
        ],
    )
    assert [(str(each), each.kept) for each in found] == [
        ("shared file system fs-1", True), ("bucket runs", False), ("role role", True),
    ]  # fmt: skip


def test_missing_resources_are_omitted() -> None:
    gone = [
        there("FileSystem", "AWS::EFS::FileSystem", "", "CREATE_FAILED"),
        there("RunBucket", "AWS::S3::Bucket", "runs", "DELETE_COMPLETE"),
    ]
    assert parse(TEMPLATE, gone) == ()


def test_deleted_data_is_announced_in_capitals() -> None:
    assert describe_fate([holder("file system", False), holder("bucket", False)]) == (
        "ITS FILE SYSTEM AND BUCKET ARE DELETED TOO, WITH ALL CONTENT"
    )
    assert describe_fate([holder("file system", True), holder("bucket", True)]) == (
        "its file system and bucket are kept"
    )
    assert describe_fate([holder("file system", True), holder("bucket", False)]) == (
        "its file system is kept, ITS BUCKET IS DELETED TOO, WITH ALL CONTENT"
    )
    assert describe_fate([]) == "it contains no data"


def test_remaining_resources_are_listed_with_id_and_cost() -> None:
    gone, kept, tools = describe_remains([holder("bucket", True), holder("file system", False)], "mine", "Corp")
    assert "no longer cost money" in gone
    assert kept.startswith("kept: bucket id")
    assert "key pair mine and the CDK's stack Corp" in tools


def test_protected_stack_is_rejected_before_buckets_are_emptied() -> None:
    check_deletable("deepcdk", None)
    check_deletable("deepcdk", {"EnableTerminationProtection": False})
    with pytest.raises(DeepcdkError, match="termination protection") as caught:
        check_deletable("deepcdk", {"EnableTerminationProtection": True})
    assert "termination_protection=false" in caught.value.remedy


@pytest.mark.parametrize("status", ["UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS"])
def test_changing_stack_is_rejected_before_buckets_are_emptied(status: str) -> None:
    with pytest.raises(DeepcdkError, match=f"stack deepcdk is being changed, by `fab up`.*\n.*{status}") as caught:
        check_deletable("deepcdk", {"StackStatus": status})
    assert "repeat the command" in caught.value.remedy
    for deletable in ("CREATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "REVIEW_IN_PROGRESS", "UPDATE_COMPLETE"):
        check_deletable("deepcdk", {"StackStatus": deletable})


def test_bucket_is_emptied_of_all_versions(aws: Aws) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="runs")
    s3.put_bucket_versioning(Bucket="runs", VersioningConfiguration={"Status": "Enabled"})
    for body in (b"1", b"2"):
        s3.put_object(Bucket="runs", Key="a", Body=body)
    s3.delete_object(Bucket="runs", Key="a")
    assert retained_data.empty_bucket(aws, "runs") == 3
    s3.delete_bucket(Bucket="runs")


def test_bucket_of_several_pages_is_listed_before_it_is_emptied(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "5")
    monkeypatch.setattr(retained_data, "MAX_DELETIONS", 4)
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="runs")
    for number in range(12):
        s3.put_object(Bucket="runs", Key=f"{number:02}", Body=b"")
    assert retained_data.empty_bucket(aws, "runs") == 12
    s3.delete_bucket(Bucket="runs")


def test_bucket_removed_by_another_laptop_is_empty(aws: Aws) -> None:
    assert retained_data.empty_bucket(aws, "gone") == 0
