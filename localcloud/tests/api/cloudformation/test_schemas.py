"""Properties with known values are checked against the schemas of CloudFormation's registry."""

from __future__ import annotations

from typing import Any

import pytest

from localcloud.api.cloudformation.schemas import UNKNOWN, check, schema_of
from localcloud.api.cloudformation.types.allowlist import RESOURCE_TYPES

_SOURCES = "CidrIp, CidrIpv6, SourcePrefixListId, SourceSecurityGroupId, SourceSecurityGroupName"


def _keyword(name: str) -> str:
    return f"failed validation constraint for keyword [{name}]"


@pytest.mark.parametrize("name", RESOURCE_TYPES)
def test_every_type_has_a_schema(name: str) -> None:
    assert schema_of(name) is not None


@pytest.mark.parametrize(
    ("type_name", "properties", "path", "text"),
    [
        ("Logs::LogGroup", {"LogGroupName": "a b"}, "LogGroupName", _keyword("pattern")),
        ("Logs::LogGroup", {"LogGroupName": "x" * 513}, "LogGroupName", "expected maxLength: 512, actual: 513"),
        ("Logs::LogGroup", {"RetentionInDays": 6}, "RetentionInDays", _keyword("enum")),
        ("KMS::Key", {"PendingWindowInDays": 6}, "PendingWindowInDays", _keyword("minimum")),
        ("KMS::Key", {"PendingWindowInDays": 31}, "PendingWindowInDays", _keyword("maximum")),
        ("KMS::Key", {"EnableKeyRotation": "perhaps"}, "EnableKeyRotation", "expected type: Boolean, found: String"),
        ("EC2::VPC", {"CidrBlock": "10.0.0.0/33"}, "CidrBlock", _keyword("format")),
        ("IAM::Policy", {"PolicyName": "p"}, "", "required key [PolicyDocument] not found"),
        ("S3::Bucket", {"BucketEncryption": {"Key": 1}}, "BucketEncryption", "extraneous key [Key] is not permitted"),
        ("IAM::InstanceProfile", {"Roles": ["a", "b"]}, "Roles", "expected maximum item count: 1, found: 2"),
        ("SQS::Queue", {"Tags": [{"Key": "a", "Value": 1}, {"Key": "a"}]}, "Tags/1", "required key [Value] not found"),
        (
            "EC2::SecurityGroup",
            {"GroupDescription": "nodes", "SecurityGroupIngress": [{"IpProtocol": "tcp"}]},
            "SecurityGroupIngress/0",
            f"exactly one of [{_SOURCES}] is required, found: 0",
        ),
    ],
)
def test_schema_violations_are_reported(type_name: str, properties: dict[str, Any], path: str, text: str) -> None:
    assert (path, text) in {("/".join(each.path), each.text) for each in check(f"AWS::{type_name}", properties)}


def test_numbers_and_booleans_may_be_text_and_documents_either() -> None:
    assert check("AWS::KMS::Key", {"PendingWindowInDays": "7", "EnableKeyRotation": "true"}) == []
    assert check("AWS::Logs::LogGroup", {"LogGroupName": "x" * 512}) == [], "as long as may be"
    distribution = {"OnDemandBaseCapacity": "1"}
    specification = {"LaunchTemplateId": "lt-1", "Version": 1}
    mixed = {"LaunchTemplate": {"LaunchTemplateSpecification": specification}, "InstancesDistribution": distribution}
    assert (
        check("AWS::AutoScaling::AutoScalingGroup", {"MinSize": 0, "MaxSize": 1, "MixedInstancesPolicy": mixed}) == []
    )
    for document in ({"Version": "2012-10-17"}, '{"Version": "2012-10-17"}'):
        assert check("AWS::SNS::TopicPolicy", {"Topics": ["t"], "PolicyDocument": document}) == []


def test_unknown_values_violate_nothing() -> None:
    assert check("AWS::Logs::LogGroup", {"LogGroupName": UNKNOWN, "Tags": [UNKNOWN, UNKNOWN]}) == []
    assert check("AWS::EC2::VPC", {"CidrBlock": UNKNOWN}) == []


def test_type_without_schema_is_not_checked() -> None:
    assert check("AWS::No::Such", {"Any": "thing"}) == []
