"""The deployed stack: its outputs must exist, and missing ones are named."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from cluster.aws.client import Aws
from cluster.aws.stack import describe_stack, find_stack, parse_stack, read_template
from cluster.errors import AwsError, NoStackError
from tests.cluster.aws.test_inventory import description


def test_outputs_are_read_and_those_of_earlier_versions_have_defaults() -> None:
    stack = parse_stack(description())
    assert (stack.max_workers, stack.runs_root, stack.payloads_root) == (16, "/mnt/efs/runs", "/mnt/efs/payloads")
    assert (stack.ssh_access, stack.scratch_mount) == ("port", "")


def test_missing_outputs_are_reported() -> None:
    with pytest.raises(AwsError, match="BucketName, LoginUser"):
        parse_stack(description(BucketName="", LoginUser=""))
    with pytest.raises(AwsError, match="MaxWorkers"):
        parse_stack(description(MaxWorkers="many"))


@pytest.mark.parametrize("lost", [ReadTimeoutError(endpoint_url="aws"), ConnectionClosedError(endpoint_url="aws")])
def test_lost_connection_is_reported_as_an_error_of_aws(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, lost: Exception
) -> None:
    def lose(**_given: object) -> None:
        raise lost

    monkeypatch.setattr(aws.client("cloudformation"), "describe_stacks", lose)
    with pytest.raises(AwsError):
        describe_stack(aws, "deepcdk")


def test_stack_in_any_state_is_found_with_its_template(aws: Aws) -> None:
    template = {"Resources": {"Bucket": {"Type": "AWS::S3::Bucket"}}}
    aws.client("cloudformation").create_stack(StackName="deepcdk", TemplateBody=json.dumps(template))
    assert find_stack(aws, "deepcdk").max_workers == 0
    assert read_template(aws, "deepcdk") == template
    assert describe_stack(aws, "other") is None
    with pytest.raises(NoStackError, match="stack other is not deployed"):
        find_stack(aws, "other")
