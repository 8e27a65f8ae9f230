"""Names and tags of CloudFormation's resources, and conversion of their values."""

from __future__ import annotations

import botocore.session
import pytest

from localcloud.api.cloudformation.types.resource_type import Context, shaped


class _NoClients:
    def client(self, service: str) -> None:
        raise AssertionError(service)


def context_of(stack_name: str = "one", **stack_tags: str) -> Context:
    return Context(
        aws=_NoClients(),
        stack_name=stack_name,
        stack_id="arn:stack",
        logical_id="Bucket",
        suffix="0123456789ab",
        stack_tags=stack_tags,
    )


@pytest.mark.parametrize("limit", [20, 63, 255])
def test_generated_names_respect_limit_and_keep_random_part(limit: int) -> None:
    name = context_of("a" * 200).name(limit)
    assert len(name) <= limit
    assert name.endswith("-0123456789ab")


def test_resource_tags_override_stack_tags() -> None:
    tags = {
        tag["Key"]: tag["Value"] for tag in context_of(team="all", cost="1").tags([{"Key": "team", "Value": "own"}])
    }
    assert (tags["team"], tags["cost"], tags["aws:cloudformation:logical-id"]) == ("own", "1", "Bucket")


def test_loosely_typed_values_get_the_types_of_the_api() -> None:
    session = botocore.session.Session()
    client = session.create_client("ec2", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    data = {"NetworkInterfaces": [{"DeviceIndex": "0", "AssociatePublicIpAddress": "true"}], "KeyName": 7}
    assert shaped(client, "CreateLaunchTemplate", {"LaunchTemplateData": data}) == {
        "LaunchTemplateData": {
            "NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}],
            "KeyName": "7",
        }
    }
