"""The file systems, the run bucket, and their key, as the committed templates do not show them."""

from __future__ import annotations

from tests.stacks.conftest import EXISTING_KEY, Variant


def test_data_and_key_are_removed_as_configured(variant: Variant) -> None:
    template = variant("temporary")
    for id in ("FileSystem", "RunBucket", "StorageKey"):
        assert template.resources[id]["DeletionPolicy"] == template.resources[id]["UpdateReplacePolicy"] == "Delete"
    assert template.resources["StorageKey"]["Properties"]["PendingWindowInDays"] == 7


def test_throughput_and_versions_are_as_configured(variant: Variant) -> None:
    template = variant("temporary")
    (files,) = template.of("AWS::EFS::FileSystem").values()
    assert (files["ThroughputMode"], files["ProvisionedThroughputInMibps"]) == ("provisioned", 256)
    (bucket,) = template.of("AWS::S3::Bucket").values()
    assert [rule["Id"] for rule in bucket["LifecycleConfiguration"]["Rules"]] == ["BrokenUploads"]
    assert "VersioningConfiguration" not in bucket


def test_existing_file_system_gets_mount_targets_and_none_is_created(variant: Variant) -> None:
    template = variant("borrowed")
    assert not template.of("AWS::EFS::FileSystem")
    assert [item["FileSystemId"] for item in template.of("AWS::EFS::MountTarget").values()] == ["fs-0123456789abcdef0"]
    assert "fs-0123456789abcdef0.efs." in template.user_data("WorkerGroup")
    assert template.document["Outputs"]["FileSystemId"]["Value"] == "fs-0123456789abcdef0"


def test_existing_key_encrypts_all_storage_and_master_uses_it_only_via_s3(variant: Variant) -> None:
    template, key = variant("borrowed"), EXISTING_KEY
    mappings = [
        item for group in ("MasterGroup", "WorkerGroup") for item in template.template_of(group)["BlockDeviceMappings"]
    ]
    assert all(mapping["Ebs"]["KmsKeyId"] == key for mapping in mappings)
    assert [item["KmsKeyId"] for item in template.of("AWS::Logs::LogGroup").values()] == [key, key]
    (bucket,) = template.of("AWS::S3::Bucket").values()
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    (statement,) = [each for each in template.statements() if "kms:" in str(each["Action"])]
    assert statement["Resource"] == key
    assert "s3." in str(statement["Condition"]["StringEquals"]["kms:ViaService"])
    assert not template.of("AWS::KMS::Key")


def test_lustre_scratch_file_system_has_its_own_key_and_imports_bucket(variant: Variant) -> None:
    template = variant("borrowed")
    (scratch,) = template.of("AWS::FSx::FileSystem").values()
    assert scratch["StorageCapacity"] == 1200
    assert scratch["LustreConfiguration"] == {"DeploymentType": "SCRATCH_2", "DataCompressionType": "NONE"}
    assert "KmsKeyId" not in scratch, "a scratch file system has FSx's own key, whatever key is asked for"
    (link,) = template.of("AWS::FSx::DataRepositoryAssociation").values()
    assert "AutoExportPolicy" not in link["S3"], "files go back to the bucket on request only"
