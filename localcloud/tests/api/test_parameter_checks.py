"""Calls with parameters that violate AWS's models are rejected as by AWS. Valid calls are executed."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from moto.core.utils import get_service_model

from api.templates import Client, connect
from localcloud.api.cloud import Cloud
from localcloud.api.parameter_checks import CODES, compiled

_MUST = "failed to satisfy constraint: Member must"


@pytest.mark.parametrize(
    ("call", "parameters", "code", "text"),
    [
        (
            "autoscaling:describe_auto_scaling_groups",
            {"MaxRecords": 101},
            "ValidationError",
            f"'101' at 'maxRecords' {_MUST} have value less than or equal to 100",
        ),
        (
            "iam:create_role",
            {"RoleName": "a b", "AssumeRolePolicyDocument": "{}"},
            "ValidationError",
            rf"'a b' at 'roleName' {_MUST} satisfy regular expression pattern: [\w",
        ),
        (
            "efs:create_file_system",
            {"CreationToken": "x", "PerformanceMode": "fast"},
            "ValidationException",
            f"'fast' at 'performanceMode' {_MUST} satisfy enum value set: [generalPurpose, maxIO]",
        ),
        (
            "logs:create_log_group",
            {"logGroupName": "x" * 513},
            "InvalidParameterException",
            f"'{'x' * 513}' at 'logGroupName' {_MUST} have length less than or equal to 512",
        ),
        (
            "cloudwatch:put_metric_alarm",
            {"AlarmName": "a", "EvaluationPeriods": 0, "ComparisonOperator": "GreaterThanThreshold"},
            "ValidationError",
            f"'0' at 'evaluationPeriods' {_MUST} have value greater than or equal to 1",
        ),
    ],
)
def test_parameter_outside_its_constraint_is_rejected(
    client: Client, call: str, parameters: dict[str, object], code: str, text: str
) -> None:
    service, action = call.split(":")
    unchecked = connect(client(service).meta.endpoint_url, service, check_parameters=False)
    with pytest.raises(ClientError) as refusal:
        getattr(unchecked, action)(**parameters)
    error = refusal.value.response["Error"]
    assert error["Code"] == code
    assert error["Message"].startswith(f"1 validation error detected: Value {text}")


def test_all_violations_are_in_one_error(client: Client) -> None:
    with pytest.raises(ClientError, match=r"2 validation errors detected: .*'path'.*; .*'roleName'"):
        client("iam").create_role(RoleName="a b", Path="x", AssumeRolePolicyDocument="{}")


def test_only_cloudformation_can_set_its_reserved_tags(client: Client, cloud: Cloud) -> None:
    tags = [{"Key": "aws:cloudformation:stack-name", "Value": "one"}]
    with pytest.raises(ClientError, match=r"at 'tags\.1\.member\.key'"):
        client("efs").create_file_system(CreationToken="theirs", Tags=tags)
    assert cloud.loopback.client("efs").create_file_system(CreationToken="ours", Tags=tags)["FileSystemId"]


@pytest.mark.parametrize("service", CODES)
def test_every_pattern_of_the_models_can_be_read(service: str) -> None:
    model = get_service_model(service)
    patterns = {model.shape_for(name).metadata.get("pattern") for name in model.shape_names} - {None}
    assert len([compiled(pattern) for pattern in patterns]) == len(patterns) > 0
