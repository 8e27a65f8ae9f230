"""The shared file system and the run bucket."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stacks.template import Template

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
