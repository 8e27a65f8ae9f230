"""Every statement of every template, one by one: no action by wildcard, every resource only where there is no other.

Also the statements that are attached to a resource and say who may use it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.stacks.clusters.eight import CLUSTERS
from tests.stacks.clusters.policies import EVERYWHERE, allowing, excess, listed
from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template

# Statements too wide, by the type of the resource that carries them, and what is said of each.
TOO_WIDE: list[tuple[str, dict[str, Any], str]] = [
    ("AWS::IAM::Policy", {"Action": "s3:*", "Resource": "arn:aws:s3:::mine"}, "action s3:*"),
    ("AWS::IAM::Policy", {"Action": ["ec2:RunInstances"], "Resource": "*"}, "ec2:RunInstances on every resource"),
    ("AWS::IAM::Policy", {"Action": "cloudwatch:PutMetricData", "Resource": "*"}, "no condition"),
    ("AWS::IAM::Policy", {"NotAction": "iam:PassRole", "Resource": "mine"}, "NotAction"),
    ("AWS::S3::BucketPolicy", {"Action": "s3:GetObject", "Resource": "*", "Principal": "*"}, "anybody"),
    ("AWS::KMS::Key", {"Action": "kms:*", "Resource": "*", "Principal": {"AWS": "*"}}, "action kms:*"),
]


@pytest.fixture(params=list(CLUSTERS))
def each_template(request: pytest.FixtureRequest, inspected: Callable[[str], Inspected]) -> Template:
    return inspected(request.param).template


def test_no_template_allows_more_than_is_listed(each_template: Template) -> None:
    assert list(excess(each_template)) == []


def test_the_walk_sees_more_than_the_roles_own_policies(inspected: Callable[[str], Inspected]) -> None:
    template = inspected("everything").template
    assert len(allowing(template.resources)) > len(list(template.statements())) > 3


@pytest.mark.parametrize(("kind", "statement", "said"), TOO_WIDE, ids=[said for _, _, said in TOO_WIDE])
def test_a_statement_that_is_too_wide_is_found(
    kind: str, statement: dict[str, Any], said: str, inspected: Callable[[str], Inspected]
) -> None:
    document = copy.deepcopy(inspected("everything").template.document)
    carrier = next(item for item in document["Resources"].values() if item["Type"] == kind)
    carrier["Properties"]["AnyPolicy"] = {"Statement": {"Effect": "Allow", **statement}}
    assert any(said in text for text in excess(Template(document)))


def test_a_policy_that_is_attached_whole_is_found(inspected: Callable[[str], Inspected]) -> None:
    document = copy.deepcopy(inspected("default CPU").template.document)
    role = next(item for item in document["Resources"].values() if item["Type"] == "AWS::IAM::Role")
    role["Properties"]["ManagedPolicyArns"] = ["arn:aws:iam::aws:policy/AmazonS3FullAccess"]
    assert any("attached whole" in text for text in excess(Template(document)))


def test_every_exception_is_one_that_a_template_needs(inspected: Callable[[str], Inspected]) -> None:
    of_roles = [each for name in CLUSTERS for each in inspected(name).template.statements()]
    open_ones = [each for each in of_roles if "*" in listed(each.get("Resource", []))]
    assert {action for each in open_ones for action in listed(each["Action"])} == set(EVERYWHERE)
