"""Bucket policies with conditions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.api.s3 import holds
from tests.localcloud.api.templates import Client


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"Bool": {"aws:SecureTransport": "false"}}, False),
        ({"Bool": {"aws:SecureTransport": "true"}}, True),
        ({"NumericLessThan": {"s3:TlsVersion": "1.2"}}, False),
        ({"StringEquals": {"aws:PrincipalOrgID": "o-1"}}, False),
        ({}, True),
    ],
)
def test_conditions_on_the_transport_are_decided(condition: dict[str, Any], expected: bool) -> None:
    assert holds(condition) is expected


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
