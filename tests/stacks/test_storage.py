"""The shared file system, the run bucket, and their encryption key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import EXISTING_KEY, Variant

NEW_KEY = {"Fn::GetAtt": ["StorageKey", "Arn"]}
FILES, BUCKET, KEY = "FileSystem", "RunBucket", "StorageKey"
"""Logical ids. Under another id, the resource would be created again, empty."""


@pytest.mark.parametrize(
    ("name", "on_delete", "on_replace"),
    [("everything", "RetainExceptOnCreate", "Retain"), ("temporary", "Delete", "Delete")],
)
def test_data_and_their_key_are_kept_or_removed_as_asked(
    name: str, on_delete: str, on_replace: str, variant: Variant, inspected: Callable[[str], Inspected]
) -> None:
    template = inspected(name).template if name == "everything" else variant(name)
    for id in (FILES, BUCKET, KEY):
        assert template.resources[id]["DeletionPolicy"] == on_delete
        assert template.resources[id]["UpdateReplacePolicy"] == on_replace
    assert template.resources[KEY]["Properties"].get("PendingWindowInDays") == (None if name == "everything" else 7)


def test_only_data_outlives_the_stack(template: Template) -> None:
    retained = {id for id, item in template.resources.items() if "Retain" in item.get("DeletionPolicy", "")}
    assert retained == {FILES, BUCKET}


def test_an_existing_file_system_gets_mount_targets_and_none_is_created(variant: Variant) -> None:
    template = variant("borrowed")
    assert not template.of("AWS::EFS::FileSystem")
    assert [item["FileSystemId"] for item in template.of("AWS::EFS::MountTarget").values()] == ["fs-0123456789abcdef0"]
    assert "fs-0123456789abcdef0.efs." in template.user_data("WorkerGroup")
    assert template.document["Outputs"]["FileSystemId"]["Value"] == "fs-0123456789abcdef0"


def test_every_private_subnet_has_a_mount_target(variant: Variant) -> None:
    template = variant("own images")
    targets = [item["SubnetId"]["Ref"] for item in template.of("AWS::EFS::MountTarget").values()]
    assert sorted(targets) == sorted(template.subnets_of("WorkerGroup"))


def test_throughput_and_storage_classes_are_as_asked(
    template: Template, variant: Variant, inspected: Callable[[str], Inspected]
) -> None:
    (plain,) = template.of("AWS::EFS::FileSystem").values()
    assert not {"LifecyclePolicies", "BackupPolicy", "ProvisionedThroughputInMibps"} & set(plain)
    (item,) = inspected("everything").template.of("AWS::EFS::FileSystem").values()
    assert item["LifecyclePolicies"] == [
        {"TransitionToIA": "AFTER_30_DAYS"},
        {"TransitionToArchive": "AFTER_90_DAYS"},
        {"TransitionToPrimaryStorageClass": "AFTER_1_ACCESS"},
    ]
    (item,) = variant("temporary").of("AWS::EFS::FileSystem").values()
    assert (item["ThroughputMode"], item["ProvisionedThroughputInMibps"]) == ("provisioned", 256)


def rules(template: Template) -> dict[str, dict[str, Any]]:
    (bucket,) = template.of("AWS::S3::Bucket").values()
    return {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}


def test_runs_and_older_versions_leave_the_bucket_as_asked(
    template: Template, variant: Variant, inspected: Callable[[str], Inspected]
) -> None:
    assert rules(template).keys() == {"BrokenUploads", "OlderVersions", "DeleteMarkers"}
    assert rules(template)["OlderVersions"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    runs = rules(inspected("everything").template)["Runs"]
    assert (runs["Prefix"], runs["ExpirationInDays"]) == ("runs/", 365)
    plain = variant("temporary")
    assert rules(plain).keys() == {"BrokenUploads"}
    (bucket,) = plain.of("AWS::S3::Bucket").values()
    assert "VersioningConfiguration" not in bucket


@pytest.mark.parametrize(("name", "key"), [("temporary", NEW_KEY), ("borrowed", EXISTING_KEY)])
def test_key_encrypts_all_storage_and_the_master_uses_it_only_through_the_bucket(
    name: str, key: object, variant: Variant
) -> None:
    template = variant(name)
    mappings = [
        item for group in ("MasterGroup", "WorkerGroup") for item in template.template_of(group)["BlockDeviceMappings"]
    ]
    assert all(mapping["Ebs"]["KmsKeyId"] == key for mapping in mappings)
    assert all(item["KmsKeyId"] == key for item in template.of("AWS::EFS::FileSystem").values())
    assert [item["KmsKeyId"] for item in template.of("AWS::Logs::LogGroup").values()] == [key, key]
    (bucket,) = template.of("AWS::S3::Bucket").values()
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    assert rule["BucketKeyEnabled"] is True
    (statement,) = [each for each in template.statements() if "kms:" in str(each["Action"])]
    assert statement["Resource"] == key
    assert "s3." in str(statement["Condition"]["StringEquals"]["kms:ViaService"])
    assert bool(template.of("AWS::KMS::Key")) == (key == NEW_KEY)


def test_key_policy_admits_only_auto_scaling_and_logs(variant: Variant) -> None:
    key = variant("temporary").resources[KEY]["Properties"]
    account, *others = key["KeyPolicy"]["Statement"]
    assert ":root" in str(account["Principal"])  # the account's own policies decide, as KMS recommends
    assert [each["Sid"] for each in others] == [
        "AutoScalingUsesTheKey",
        "AutoScalingLendsTheKeyToVolumes",
        "LogsUseTheKey",
    ]
    for statement in others[:2]:
        assert statement["Condition"]["StringEquals"] == {"kms:CallerAccount": {"Ref": "AWS::AccountId"}}
        assert "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling" in str(
            statement["Condition"]["ArnEquals"]["aws:PrincipalArn"]
        )
    assert others[1]["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    groups = others[2]["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"]
    assert groups["Fn::Join"][1][-2:] == [{"Ref": "AWS::StackName"}, "-*"]


def test_by_default_there_is_no_key(template: Template) -> None:
    assert "KmsKeyId" not in template.text()
    assert "kms:" not in template.text()
