"""Clients with requests that stay in the process."""

from __future__ import annotations

import io
from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.api.cloud import Cloud


def test_requests_of_every_protocol_come_back(cloud: Cloud) -> None:
    aws = cloud.loopback
    assert aws.client("ec2").describe_vpcs()["Vpcs"]
    assert aws.client("sts").get_caller_identity()["Account"] == "123456789012"
    aws.client("ssm").put_parameter(Name="/x", Type="String", Value="1")
    assert aws.client("ssm").get_parameter(Name="/x")["Parameter"]["Value"] == "1"
    assert aws.client("efs").describe_file_systems()["FileSystems"] == []
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="things")
    s3.put_object(Bucket="things", Key="a folder/ö.txt", Body=b"text")
    assert s3.get_object(Bucket="things", Key="a folder/ö.txt")["Body"].read() == b"text"
    assert s3.head_object(Bucket="things", Key="a folder/ö.txt")["ContentLength"] == 4


@pytest.mark.parametrize("body", [b"text", bytearray(b"text"), io.BytesIO(b"text")])
def test_body_can_have_every_type_that_boto3_accepts(cloud: Cloud, body: Any) -> None:
    s3 = cloud.loopback.client("s3")
    s3.create_bucket(Bucket="bodies")
    s3.put_object(Bucket="bodies", Key="key", Body=body)
    assert s3.get_object(Bucket="bodies", Key="key")["Body"].read() == b"text"


def test_errors_come_back_as_errors(cloud: Cloud) -> None:
    with pytest.raises(ClientError) as caught:
        cloud.loopback.client("s3").head_bucket(Bucket="nowhere")
    assert caught.value.response["Error"]["Code"] == "404"


def test_bucket_comes_from_path_even_if_signer_adds_host(cloud: Cloud) -> None:
    """Source: aws-cli #9949: with botocore[crt] the signer adds this header, and the CDK's bootstrap failed here."""
    s3 = cloud.loopback.client("s3")
    s3.create_bucket(Bucket="signed")
    s3.meta.events.register_first(
        "before-send", lambda request, **_: request.headers.__setitem__("host", "loopback.invalid")
    )
    s3.put_object(Bucket="signed", Key="key", Body=b"text")
    assert s3.get_object(Bucket="signed", Key="key")["Body"].read() == b"text"
