"""Bucket policies with conditions, default encryption, and paginated lists of versions."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from api.templates import Client


def test_deny_of_plain_http_has_no_effect_and_deny_of_all_does(client: Client) -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="runs")
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": ["arn:aws:s3:::runs/*"]}
    insecure = {**deny, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    s3.put_bucket_policy(Bucket="runs", Policy=json.dumps({"Statement": [insecure]}))
    s3.put_object(Bucket="runs", Key="a", Body=b"1")
    s3.put_bucket_policy(Bucket="runs", Policy=json.dumps({"Statement": [deny]}))
    with pytest.raises(ClientError):
        s3.put_object(Bucket="runs", Key="b", Body=b"1")


def test_every_bucket_is_encrypted(client: Client) -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="plain")
    (rule,) = s3.get_bucket_encryption(Bucket="plain")["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"


@pytest.mark.parametrize("versioned", [False, True])
def test_version_list_continues_after_deleted_marker(client: Client, versioned: bool) -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="many")
    if versioned:
        s3.put_bucket_versioning(Bucket="many", VersioningConfiguration={"Status": "Enabled"})
    for number in range(12 + 6 * versioned):
        s3.put_object(Bucket="many", Key=f"{number % 12:02}", Body=b"")
    deleted = []
    for page in s3.get_paginator("list_object_versions").paginate(Bucket="many", PaginationConfig={"PageSize": 5}):
        for each in page.get("Versions", []):
            s3.delete_object(Bucket="many", Key=each["Key"], VersionId=each["VersionId"])
            deleted.append(each["Key"])
    assert sorted(deleted) == sorted(f"{number % 12:02}" for number in range(12 + 6 * versioned))
    assert not s3.list_object_versions(Bucket="many").get("Versions")


@pytest.mark.parametrize(("marker", "names"), [("a", ["b/1", "c"]), ("aa", ["b/1", "c"]), ("", ["a", "b/1", "c"])])
def test_version_list_starts_after_key_marker(client: Client, marker: str, names: list[str]) -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="few")
    for name in ("a", "b/1", "c"):
        s3.put_object(Bucket="few", Key=name, Body=b"")
    assert [each["Key"] for each in s3.list_object_versions(Bucket="few", KeyMarker=marker)["Versions"]] == names
