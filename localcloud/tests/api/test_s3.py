"""Bucket policies with conditions, and encryption."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from api.templates import Client


def test_a_rule_against_plain_http_locks_nobody_out_and_one_against_all_does(client: Client) -> None:
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
