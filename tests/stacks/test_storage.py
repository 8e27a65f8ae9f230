"""The shared file system and the run bucket."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stacks.clusters.template import Template

KEEPS_DATA = ("AWS::EFS::FileSystem", "AWS::S3::Bucket")


@pytest.mark.parametrize(
    ("retain", "on_delete", "on_replace"), [(True, "RetainExceptOnCreate", "Retain"), (False, "Delete", "Delete")]
)
def test_data_is_kept_or_removed_as_asked(
    synthesise: Callable[..., Template], retain: bool, on_delete: str, on_replace: str
) -> None:
    template = synthesise() if retain else synthesise(retain_data=False)
    kept = [item for item in template.resources.values() if item["Type"] in KEEPS_DATA]
    assert len(kept) == 2
    assert {item["DeletionPolicy"] for item in kept} == {on_delete}
    assert {item["UpdateReplacePolicy"] for item in kept} == {on_replace}


def test_only_data_outlives_the_stack(template: Template) -> None:
    retained = {item["Type"] for item in template.resources.values() if "Retain" in item.get("DeletionPolicy", "")}
    assert retained == set(KEEPS_DATA)


def test_every_file_system_is_encrypted(template: Template) -> None:
    assert [item["Encrypted"] for item in template.of("AWS::EFS::FileSystem").values()] == [True]


def test_every_private_subnet_has_a_mount_target(synthesise: Callable[..., Template]) -> None:
    template = synthesise(availability_zones=2)
    targets = [item["SubnetId"]["Ref"] for item in template.of("AWS::EFS::MountTarget").values()]
    assert sorted(targets) == sorted(template.subnets_of("WorkerGroup"))


def test_an_existing_file_system_gets_mount_targets_and_none_is_created(synthesise: Callable[..., Template]) -> None:
    template = synthesise(file_system_id="fs-0123456789abcdef0")
    assert not template.of("AWS::EFS::FileSystem")
    assert [item["FileSystemId"] for item in template.of("AWS::EFS::MountTarget").values()] == ["fs-0123456789abcdef0"]
    assert "fs-0123456789abcdef0.efs." in template.user_data("WorkerGroup")
    assert template.document["Outputs"]["FileSystemId"]["Value"] == "fs-0123456789abcdef0"


def test_every_bucket_is_encrypted_and_closed_to_the_public(template: Template) -> None:
    for bucket in template.of("AWS::S3::Bucket").values():
        (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
        assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}


def test_every_bucket_refuses_plain_http(template: Template) -> None:
    refused = [
        statement["Condition"]
        for policy in template.of("AWS::S3::BucketPolicy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
    ]
    assert {"Bool": {"aws:SecureTransport": "false"}} in refused
    policies = [item["Bucket"]["Ref"] for item in template.of("AWS::S3::BucketPolicy").values()]
    assert policies == list(template.of("AWS::S3::Bucket"))


def test_data_keeps_its_logical_ids_because_new_ones_would_start_empty(template: Template) -> None:
    assert list(template.of("AWS::EFS::FileSystem")) == ["FileSystem"]
    assert list(template.of("AWS::S3::Bucket")) == ["RunBucket"]


def test_by_default_a_file_system_bursts_and_keeps_its_files_where_they_are(template: Template) -> None:
    (item,) = template.of("AWS::EFS::FileSystem").values()
    assert (item["ThroughputMode"], item["PerformanceMode"]) == ("bursting", "generalPurpose")
    assert not {"LifecyclePolicies", "BackupPolicy", "ProvisionedThroughputInMibps"} & set(item)


def test_a_file_system_is_reached_through_its_mount_targets_alone(template: Template) -> None:
    (item,) = template.of("AWS::EFS::FileSystem").values()
    (statement,) = item["FileSystemPolicy"]["Statement"]
    assert statement["Condition"] == {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}


def test_throughput_classes_and_backup_are_as_asked(synthesise: Callable[..., Template]) -> None:
    template = synthesise(
        efs_throughput="elastic", efs_infrequent_after_days=1, efs_archive_after_days=90, efs_backup=True
    )
    (item,) = template.of("AWS::EFS::FileSystem").values()
    assert item["ThroughputMode"] == "elastic"
    assert item["BackupPolicy"] == {"Status": "ENABLED"}
    assert item["LifecyclePolicies"] == [
        {"TransitionToIA": "AFTER_1_DAY"},
        {"TransitionToArchive": "AFTER_90_DAYS"},
        {"TransitionToPrimaryStorageClass": "AFTER_1_ACCESS"},
    ]
    provisioned = synthesise(efs_throughput="provisioned", efs_throughput_mibps=256)
    (item,) = provisioned.of("AWS::EFS::FileSystem").values()
    assert (item["ThroughputMode"], item["ProvisionedThroughputInMibps"]) == ("provisioned", 256)


def rules(template: Template) -> dict[str, dict[str, object]]:
    (bucket,) = template.of("AWS::S3::Bucket").values()
    return {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}


BROKEN_UPLOADS = {
    "Id": "BrokenUploads",
    "Status": "Enabled",
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
}


def test_by_default_what_is_overwritten_is_kept_for_a_month_and_no_run_leaves_by_age(template: Template) -> None:
    assert rules(template) == {
        "BrokenUploads": BROKEN_UPLOADS,
        "OlderVersions": {
            "Id": "OlderVersions",
            "Status": "Enabled",
            "NoncurrentVersionExpiration": {"NoncurrentDays": 30},
        },
        "DeleteMarkers": {"Id": "DeleteMarkers", "Status": "Enabled", "ExpiredObjectDeleteMarker": True},
    }
    (bucket,) = template.of("AWS::S3::Bucket").values()
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}


def test_without_versioning_nothing_is_said_of_versions(synthesise: Callable[..., Template]) -> None:
    template = synthesise(bucket_versioning=False)
    assert rules(template) == {"BrokenUploads": BROKEN_UPLOADS}
    (bucket,) = template.of("AWS::S3::Bucket").values()
    assert "VersioningConfiguration" not in bucket


def test_runs_and_older_versions_leave_the_bucket_as_asked(synthesise: Callable[..., Template]) -> None:
    template = synthesise(bucket_versioning=True, bucket_expire_versions_days=14, bucket_expire_runs_days=365)
    (bucket,) = template.of("AWS::S3::Bucket").values()
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    found = rules(template)
    assert (found["Runs"]["Prefix"], found["Runs"]["ExpirationInDays"]) == ("runs/", 365)
    assert found["OlderVersions"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 14}
    assert found["DeleteMarkers"]["ExpiredObjectDeleteMarker"] is True


def test_storage_in_all_its_choices_passes_cfn_lint(synthesise: Callable[..., Template]) -> None:
    from cfnlint.api import ManualArgs, lint

    template = synthesise(
        efs_throughput="elastic",
        efs_infrequent_after_days=30,
        efs_archive_after_days=90,
        efs_backup=True,
        bucket_versioning=True,
        bucket_expire_versions_days=14,
        bucket_expire_runs_days=365,
    )
    matches = lint(template.text(), config=ManualArgs(regions=["us-east-1", "eu-central-1"]))
    assert [str(match) for match in matches] == []
