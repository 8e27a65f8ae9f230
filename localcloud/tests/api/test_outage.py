from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from api.templates import Client
from localcloud.api.cloud import Cloud
from localcloud.api.error_replies import Outage

ENVIRON = {"HTTP_AUTHORIZATION": "AWS4-HMAC-SHA256 Credential=K/20261120/us-east-1/ec2/aws4_request, x"}


def test_share_of_calls_fails_until_outage_is_over() -> None:
    now = 0.0
    outage = Outage(lambda: now)
    assert outage.refusal(ENVIRON, "ec2", "DescribeInstances") is None
    outage.begin(0.5, 30.0)
    answers = [outage.refusal(ENVIRON, "ec2", "DescribeInstances") for _ in range(400)]
    refused = [answer for answer in answers if answer]
    assert 140 < len(refused) < 260
    status, _, body = refused[0]
    assert status == 503 and b"ServiceUnavailable" in body
    now = 30.0
    assert outage.refusal(ENVIRON, "ec2", "DescribeInstances") is None


def test_outage_can_be_stopped_early() -> None:
    outage = Outage()
    outage.begin(1.0, 300.0)
    assert outage.refusal(ENVIRON, "ec2", "RunInstances")
    outage.begin(0.0, 0.0)
    assert outage.refusal(ENVIRON, "ec2", "RunInstances") is None


@pytest.mark.parametrize(
    ("service", "call"),
    [
        ("ec2", "describe_vpcs"),
        ("autoscaling", "describe_auto_scaling_groups"),
        ("cloudformation", "list_stacks"),
        ("s3", "list_buckets"),
        ("ssm", "describe_parameters"),
        ("sts", "get_caller_identity"),
    ],
)
def test_outage_returns_503_to_clients_but_not_to_the_cloud_itself(
    cloud: Cloud, client: Client, service: str, call: str
) -> None:
    getattr(client(service), call)()
    cloud.fail(1.0, 300.0)
    with pytest.raises(ClientError) as caught:
        getattr(client(service), call)()
    cloud.loopback.client("ec2").describe_vpcs()
    cloud.fail(0.0, 0.0)
    answer = caught.value.response
    assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == ("ServiceUnavailable", 503)
    getattr(client(service), call)()
