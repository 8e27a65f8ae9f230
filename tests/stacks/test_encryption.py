"""The key of volumes, file systems and bucket: none of one's own, a new one, or an existing one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.clusters.template import Template
from tests.stacks.clusters.test_template import inspect_with_nag

EXISTING = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
NEW = {"Fn::GetAtt": ["StorageKey", "Arn"]}


@pytest.fixture(params=["create", EXISTING], ids=["new", "existing"])
def keyed(request: pytest.FixtureRequest, synthesise: Callable[..., Template]) -> tuple[Template, object]:
    """Return a template with a key, and what stands in it for the key."""
    return synthesise(kms_key=request.param), NEW if request.param == "create" else EXISTING


def volumes(template: Template) -> Iterator[dict[str, Any]]:
    for group in ("MasterGroup", "WorkerGroup"):
        for mapping in template.template_of(group)["BlockDeviceMappings"]:
            yield mapping["Ebs"]


def test_by_default_awss_own_keys_serve(template: Template) -> None:
    assert not template.of("AWS::KMS::Key")
    assert "KmsKeyId" not in template.text()
    assert "kms:" not in template.text()


def test_the_key_encrypts_all_that_is_stored(keyed: tuple[Template, object]) -> None:
    template, key = keyed
    assert {str(volume["KmsKeyId"]) for volume in volumes(template)} == {str(key)}
    assert all(volume["Encrypted"] for volume in volumes(template))
    assert [item["KmsKeyId"] for item in template.of("AWS::EFS::FileSystem").values()] == [key]
    (bucket,) = template.of("AWS::S3::Bucket").values()
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    assert rule["BucketKeyEnabled"] is True


def test_the_master_uses_the_key_through_the_bucket_alone_and_the_workers_not_at_all(
    keyed: tuple[Template, object],
) -> None:
    template, key = keyed
    (statement,) = [each for each in template.statements() if "kms:" in str(each["Action"])]
    assert statement["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert statement["Resource"] == key
    assert "s3." in str(statement["Condition"]["StringEquals"]["kms:ViaService"])
    (owner,) = [
        policy["Roles"]
        for policy in template.of("AWS::IAM::Policy").values()
        if "kms:" in str(policy["PolicyDocument"])
    ]
    assert "Master" in str(owner)


def test_auto_scaling_and_nobody_else_of_the_account_is_admitted_by_the_keys_policy(
    synthesise: Callable[..., Template],
) -> None:
    template = synthesise(kms_key="create")
    (key,) = template.of("AWS::KMS::Key").values()
    account, *others = key["KeyPolicy"]["Statement"]
    assert ":root" in str(account["Principal"])  # the account's own policies decide, as KMS advises
    assert [each["Sid"] for each in others] == ["AutoScalingUsesTheKey", "AutoScalingLendsTheKeyToVolumes"]
    for statement in others:
        assert statement["Condition"]["StringEquals"] == {"kms:CallerAccount": {"Ref": "AWS::AccountId"}}
        assert "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling" in str(
            statement["Condition"]["ArnEquals"]["aws:PrincipalArn"]
        )
        assert "*" not in str(statement["Action"])
    assert others[1]["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    assert key["EnableKeyRotation"] is True


@pytest.mark.parametrize(("retain", "on_delete"), [(True, "RetainExceptOnCreate"), (False, "Delete")])
def test_the_key_stays_as_long_as_what_it_encrypts(
    synthesise: Callable[..., Template], retain: bool, on_delete: str
) -> None:
    template = synthesise(kms_key="create", retain_data=retain)
    assert template.resources["StorageKey"]["DeletionPolicy"] == on_delete
    assert template.resources["StorageKey"]["Properties"].get("PendingWindowInDays") == (None if retain else 7)


def test_an_existing_key_is_not_touched(synthesise: Callable[..., Template]) -> None:
    assert not synthesise(kms_key=EXISTING).of("AWS::KMS::Key")


@pytest.mark.parametrize("key", ["create", EXISTING], ids=["new", "existing"])
def test_inspectors_find_nothing(synthesise: Callable[..., Template], tmp_path: Path, key: str) -> None:
    from cfnlint.api import ManualArgs, lint

    matches = lint(synthesise(kms_key=key).text(), config=ManualArgs(regions=["us-east-1"]))
    assert [str(match) for match in matches] == []
    inspect_with_nag(tmp_path, kms_key=key)
