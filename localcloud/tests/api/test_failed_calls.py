"""A failed call leaves nothing behind, so a stack is rolled back completely if its creation fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api.templates import Stacks, network, nodes
from localcloud.api import error_replies, server
from localcloud.api.cloud import ACCOUNT, Cloud
from localcloud.api.loopback import Loopback
from localcloud.snapshot import Snapshot
from refusals.templates import ref, resource

_CAPABLE = {"Capabilities": ["CAPABILITY_NAMED_IAM"]}


def _trust() -> dict[str, Any]:
    allowed = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [allowed]}


def _policy(action: str) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}


def _key_policy() -> dict[str, Any]:
    owner = {"Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}}
    policy = _policy("kms:*")
    return {**policy, "Statement": [{**each, **owner} for each in policy["Statement"]]}


def _target(number: int, subnet: str) -> dict[str, Any]:
    groups = [{"Fn::GetAtt": ["Group", "GroupId"]}] * number
    system = {"FileSystemId": ref("Files"), "SubnetId": {"Ref": subnet}}
    return resource("EFS::MountTarget", **system, SecurityGroups=groups)


def _volume(**ebs: Any) -> dict[str, Any]:
    return {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8, **ebs}}]}


_FAILING: dict[str, Callable[[], dict[str, Any]]] = {
    "a launch that fails because of a volume": lambda: nodes(2, data=_volume(Encrypted=False, KmsKeyId="k")),
    "a NAT gateway with an address that is not there": lambda: {
        **network(),
        "Nat": resource("EC2::NatGateway", SubnetId=ref("A"), AllocationId="eipalloc-00000000"),
    },
    "a mount target with six groups": lambda: {
        **network(),
        "Files": resource("EFS::FileSystem"),
        "Target": _target(6, "A"),
    },
}


@pytest.mark.parametrize("case", _FAILING)
def test_partially_failed_creation_is_rolled_back_completely(case: str, cloud: Cloud, stacks: Stacks) -> None:
    name = stacks.create(_FAILING[case](), options=_CAPABLE)
    assert stacks.describe(name)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert cloud.snapshot() == Snapshot()


def _typical() -> dict[str, Any]:
    """Return resources that need several calls each, with the properties that make these calls necessary."""
    resources = nodes(1)
    tags = [{"Key": "team", "Value": "a"}]
    resources["Nodes"]["Properties"]["MetricsCollection"] = [{"Granularity": "1Minute"}]
    resources["Vpc"]["Properties"] |= {"EnableDnsHostnames": True, "Tags": tags}
    resources["Group"]["Properties"] |= {
        "SecurityGroupIngress": [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "198.18.0.0/24"}],
        "SecurityGroupEgress": [{"IpProtocol": "-1", "CidrIp": "198.18.0.0/15"}],
    }
    bucket = {"VersioningConfiguration": {"Status": "Enabled"}, "Tags": tags}
    role = {"AssumeRolePolicyDocument": _trust(), "Policies": [{"PolicyName": "p", "PolicyDocument": _policy("s3:*")}]}
    return {
        **resources,
        "Table": resource("EC2::RouteTable", VpcId=ref("Vpc")),
        "Files": resource("EFS::FileSystem"),
        "Target": _target(1, "A"),
        "Role": resource("IAM::Role", **role),
        "Profile": resource("IAM::InstanceProfile", Roles=[ref("Role")]),
        "Inline": resource("IAM::Policy", PolicyName="q", PolicyDocument=_policy("ec2:*"), Roles=[ref("Role")]),
        "Managed": resource("IAM::ManagedPolicy", PolicyDocument=_policy("sqs:*"), Roles=[ref("Role")]),
        "Topic": resource("SNS::Topic", DisplayName="words"),
        "Queue": resource("SQS::Queue"),
        "Bucket": resource("S3::Bucket", **bucket),
        "Logs": resource("Logs::LogGroup", RetentionInDays=7),
        "Key": resource("KMS::Key", KeyPolicy=_key_policy(), EnableKeyRotation=True),
    }


class _Failing:
    """An API that fails one of the requests that change something."""

    def __init__(self, application: Any, number: int) -> None:
        self._application = application
        self._left = number
        self.failed = ""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        action = server._action(environ)
        if not self.failed and not action.startswith(server._READING):
            self._left -= 1
            if self._left < 0:
                self.failed = f"{error_replies.service_of(environ)[0]}:{action}"
                status, headers, body = error_replies.reply(environ, "Throttling", "Rate exceeded")
                start_response(f"{status} Error", headers)
                return [body]
        return self._application(environ, start_response)


@pytest.fixture
def application(cloud: Cloud) -> Iterator[Any]:
    """Return the API as CloudFormation uses it, and restore it afterwards."""
    kept = cloud.loopback._application
    yield kept
    cloud.loopback._application = kept


def _left(aws: Loopback) -> dict[str, list[str]]:
    """Return the remaining resources of types that the snapshot does not show."""
    return {
        "roles": [each["RoleName"] for each in aws.client("iam").list_roles()["Roles"]],
        "profiles": [each["Arn"] for each in aws.client("iam").list_instance_profiles()["InstanceProfiles"]],
        "policies": [each["Arn"] for each in aws.client("iam").list_policies(Scope="Local")["Policies"]],
        "topics": [each["TopicArn"] for each in aws.client("sns").list_topics()["Topics"]],
        "queues": aws.client("sqs").list_queues().get("QueueUrls", []),
        "buckets": [each["Name"] for each in aws.client("s3").list_buckets()["Buckets"]],
        "logs": [each["logGroupName"] for each in aws.client("logs").describe_log_groups()["logGroups"]],
        "keys": [
            each["KeyId"]
            for each in aws.client("kms").list_keys()["Keys"]
            if aws.client("kms").describe_key(KeyId=each["KeyId"])["KeyMetadata"]["KeyState"] == "Enabled"
        ],
    }


def test_failure_of_any_creation_call_leaves_nothing(cloud: Cloud, stacks: Stacks, application: Any) -> None:
    for number in range(200):
        failing = _Failing(application, number)
        cloud.loopback._application = failing
        name = stacks.create(_typical(), options=_CAPABLE)
        status = stacks.describe(name)["StackStatus"]
        if not failing.failed:
            assert (status, number > 30) == ("CREATE_COMPLETE", True)
            return
        assert status == "ROLLBACK_COMPLETE", failing.failed
        assert cloud.snapshot() == Snapshot(), failing.failed
        assert not any(_left(cloud.loopback).values()), (failing.failed, _left(cloud.loopback))
    pytest.fail("the creation took more than 200 calls")
