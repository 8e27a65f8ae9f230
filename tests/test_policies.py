"""The policies in docs/policies allow every AWS call in the code of the tasks."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import botocore.session
import pytest
from botocore import xform_name

from localcloud.api.permissions.evaluator import Check, Evaluator, EvaluatorError, missing
from localcloud.api.permissions.resource_arns import action
from tests.e2e.conftest import check_answered

ROOT: Final = Path(__file__).parents[1]
POLICIES: Final = ROOT / "docs" / "policies"
ACCOUNT: Final = "111122223333"
USER: Final = f"arn:aws:iam::{ACCOUNT}:user/someone"
_CLIENT: Final = re.compile(r"""\.(?:client|impatient)\(\s*"([a-z0-9-]+)"\s*\)""")
PREFIXES: Final = {"efs": "elasticfilesystem", "service-quotas": "servicequotas"}
"""Services with an action prefix that differs from boto3's name."""
ACTIONS: Final = {
    "budgets:DescribeBudgets": ("budgets:ViewBudget",),
    "s3:DeleteObjects": ("s3:DeleteObject", "s3:DeleteObjectVersion"),
    "s3:HeadBucket": ("s3:ListBucket",),
    "s3:HeadObject": ("s3:GetObject",),
    "s3:ListBuckets": ("s3:ListAllMyBuckets",),
    "s3:ListObjectVersions": ("s3:ListBucketVersions",),
    "s3:ListObjectsV2": ("s3:ListBucket",),
    "sts:GetCallerIdentity": (),  # needs no permission
}
"""Calls with actions of other names."""
GROUP: Final = f"arn:aws:autoscaling:us-east-1:{ACCOUNT}:autoScalingGroup:0a1b:autoScalingGroupName/deepcdk-Workers"
BUCKET: Final = "arn:aws:s3:::deepcdk-runbucket-0a1b"
RESOURCES: Final = {
    "autoscaling:SetDesiredCapacity": GROUP,
    "autoscaling:SuspendProcesses": GROUP,
    "autoscaling:TerminateInstanceInAutoScalingGroup": GROUP,
    "budgets:ViewBudget": f"arn:aws:budgets::{ACCOUNT}:budget/any",
    "cloudformation": f"arn:aws:cloudformation:us-east-1:{ACCOUNT}:stack/deepcdk/0a1b",
    "ec2:DescribeVpcAttribute": f"arn:aws:ec2:us-east-1:{ACCOUNT}:vpc/vpc-0123456789abcdef0",
    "ec2:GetConsoleOutput": f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/i-0123456789abcdef0",
    "ec2:ImportKeyPair": f"arn:aws:ec2:us-east-1:{ACCOUNT}:key-pair/deepcdk",
    "cloudwatch": f"arn:aws:cloudwatch:us-east-1:{ACCOUNT}:alarm:deepcdk-Guard",
    "elasticfilesystem": f"arn:aws:elasticfilesystem:us-east-1:{ACCOUNT}:file-system/fs-0123456789abcdef0",
    "iam": f"arn:aws:iam::{ACCOUNT}:policy/boundary",
    "s3": BUCKET,
    "s3:DeleteObject": f"{BUCKET}/runs/1/log",
    "s3:DeleteObjectVersion": f"{BUCKET}/runs/1/log",
    "s3:GetObject": f"{BUCKET}/runs/1/log",
    "s3:ListAllMyBuckets": "*",
    "sqs": f"arn:aws:sqs:us-east-1:{ACCOUNT}:deepcdk-SpentQueue-0a1b",
    "ssm:GetParameter": f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/cdk-bootstrap/hnb659fds/version",
    "ssm:GetParameters": "arn:aws:ssm:us-east-1::parameter/aws/service/debian/release/12/latest/amd64",
}
"""An example resource for an action, or for all actions of a service; other actions have no resources."""
TAGGED: Final = {"ec2:ResourceTag/deepcdk:cluster": "deepcdk", "aws:ResourceTag/deepcdk:cluster": "deepcdk"}


def policy(*names: str) -> list[dict[str, Any]]:
    files = [POLICIES / f"{name}.json" for name in names]
    return [{"name": each.stem, "policy": json.loads(each.read_text(encoding="utf-8"))} for each in files]


def calls() -> dict[str, str]:
    """Map each AWS operation in the code of the tasks, such as `ec2:DescribeVpcs`, to one file that calls it."""
    found: dict[str, str] = {}
    session = botocore.session.Session()
    for path in sorted((ROOT / "cluster").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        services = set(_CLIENT.findall(text))
        if not services:
            continue
        nodes = list(ast.walk(ast.parse(text)))
        names = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
        names |= {each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)}
        for service in services:
            operations = session.get_service_model(service).operation_names
            mine = [each for each in operations if xform_name(each) in names]
            found |= {f"{PREFIXES.get(service, service)}:{each}": path.name for each in mine}
    return found


def checks(operation: str) -> Iterator[Check]:
    """Yield the permissions that a call needs, with the user's policies."""
    for name in ACTIONS.get(operation, (operation,)):
        service, _, what = name.partition(":")
        known = action(service, what)
        yield Check(
            principal=USER,
            action=known.name,
            resource=RESOURCES.get(known.name) or RESOURCES.get(service, "*") if known.resources else "*",
            account=ACCOUNT,
            context=TAGGED,
            identity=policy("user", "options"),
        )


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    if missing():
        pytest.skip("; ".join(missing()))
    started = Evaluator()
    started.start()
    yield started
    started.close()


def test_policies_allow_every_call_in_the_tasks(evaluator: Evaluator) -> None:
    found = calls()
    assert {"ec2:DescribeCapacityReservations", "ec2:DescribeInstances", "s3:ListObjectVersions"} <= found.keys()
    denied = {}
    for operation, file in found.items():
        for check in checks(operation):
            try:
                allowed = evaluator.decide([check])[0].allowed
            except EvaluatorError as error:
                pytest.fail(f"{file}: {error}; RESOURCES needs an example")
            if not allowed:
                denied[check.action] = f"{file}, on {check.resource}"
    assert denied == {}


@pytest.mark.parametrize("name", ["ssm:ResumeSession", "ssm:TerminateSession"])
def test_session_manager_plugin_may_use_sessions_of_the_user(evaluator: Evaluator, name: str) -> None:
    own, other = (
        Check(
            principal=USER,
            action=name,
            resource=f"arn:aws:ssm:us-east-1:{ACCOUNT}:session/{user}-0a1b",
            account=ACCOUNT,
            context={"aws:userid": "AIDA1"},
            identity=policy("options"),
        )
        for user in ("AIDA1", "AIDA2")
    )
    assert [each.allowed for each in evaluator.decide([own, other])] == [True, False]


def test_session_manager_plugin_may_open_its_data_channel() -> None:
    """The evaluator's reference lists no resource type for this action, but AWS's sample policies use one."""
    (document,) = policy("options")
    (statement,) = (each for each in document["policy"]["Statement"] if "ssmmessages:OpenDataChannel" in each["Action"])
    assert statement["Resource"] == "arn:aws:ssm:*:*:session/${aws:userid}-*"


def test_each_action_of_task_policies_exists_and_is_unique() -> None:
    statements = [each for document in policy("user", "options") for each in document["policy"]["Statement"]]
    assert len({each["Sid"] for each in statements}) == len(statements)
    for each in statements:
        for name in [each["Action"]] if isinstance(each["Action"], str) else each["Action"]:
            assert action(*name.split(":")).name == name


def test_call_unsupported_by_embedded_cloud_fails_its_tests() -> None:
    named = "  <Message>The embedded cloud does not implement {} (no service has the path /)</Message>\n"
    check_answered("ec2 DescribeVpcs 200 1 ms\n" + named.format("pricing:GetProducts"))
    with pytest.raises(pytest.fail.Exception, match=r"lacks: ec2:DescribeIpams;"):
        check_answered(named.format("pricing:GetProducts") + named.format("ec2:DescribeIpams"))
    with pytest.raises(pytest.fail.Exception, match="lacks: a condition on ssm:x"):
        check_answered("Denied, because the embedded cloud cannot decide: a condition on ssm:x\n")
