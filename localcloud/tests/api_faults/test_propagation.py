"""Eventual consistency: new objects are hidden from clients, but not from the cloud itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Stacks, nodes
from localcloud.api import eventual_consistency
from localcloud.api.cloud import Cloud
from localcloud.api_faults import throttling
from localcloud.api_faults.propagation import MAX_DELAY_S

TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"},
            {"Effect": "Allow", "Principal": {"AWS": "123456789012"}, "Action": "sts:AssumeRole"},
        ],
    }
)


class Clock:
    """Clock that only the test advances."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(eventual_consistency, "clock", clock)
    return clock


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Return a cloud without throttling that hides every new object."""
    monkeypatch.setattr(throttling, "PROBABILITY", 0.0)
    monkeypatch.setattr("localcloud.api_faults.propagation.PROBABILITY", 1.0)
    return Cloud(fault_seed=1)


def code(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call()
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def test_new_instance_is_not_found_for_some_seconds(aws: Callable[[str], Any], clock: Clock) -> None:
    ec2 = aws("ec2")
    (made,) = ec2.run_instances(ImageId=image(ec2), MinCount=1, MaxCount=1)["Instances"]
    id = made["InstanceId"]
    assert ec2.describe_instances()["Reservations"] == []
    said = "InvalidInstanceID.NotFound", f"The instance ID '{id}' does not exist"
    assert code(lambda: ec2.describe_instances(InstanceIds=[id])) == said
    assert code(lambda: ec2.get_console_output(InstanceId=id)) == said
    clock.now += MAX_DELAY_S
    assert ec2.describe_instances(InstanceIds=[id])["Reservations"][0]["Instances"][0]["InstanceId"] == id


def test_new_role_is_not_found_and_not_assumed_for_some_seconds(aws: Callable[[str], Any], clock: Clock) -> None:
    iam, sts = aws("iam"), aws("sts")
    role = iam.create_role(RoleName="new", AssumeRolePolicyDocument=TRUST)["Role"]
    assert iam.list_roles()["Roles"] == []
    assert code(lambda: iam.get_role(RoleName="new"))[0] == "NoSuchEntity"
    assert code(lambda: sts.assume_role(RoleArn=role["Arn"], RoleSessionName="test"))[0] == "AccessDenied"
    assert code(lambda: iam.create_role(RoleName="new", AssumeRolePolicyDocument=TRUST))[0] == "EntityAlreadyExists"
    clock.now += MAX_DELAY_S
    assert iam.get_role(RoleName="new")["Role"]["Arn"] == role["Arn"]
    assert sts.assume_role(RoleArn=role["Arn"], RoleSessionName="test")["Credentials"]


def test_ec2_does_not_know_a_new_profile_for_some_seconds(aws: Callable[[str], Any], clock: Clock) -> None:
    iam, ec2 = aws("iam"), aws("ec2")
    iam.create_instance_profile(InstanceProfileName="new")
    assert code(lambda: iam.get_instance_profile(InstanceProfileName="new"))[0] == "NoSuchEntity"
    assert iam.list_instance_profiles()["InstanceProfiles"] == []
    given = {"ImageId": image(ec2), "IamInstanceProfile": {"Name": "new"}}
    launch = {"MinCount": 1, "MaxCount": 1, **given}
    assert code(lambda: ec2.run_instances(**launch)) == (
        "InvalidParameterValue",
        "Value (new) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
    )
    group = {"AutoScalingGroupName": "g", "MinSize": 0, "MaxSize": 1, "VPCZoneIdentifier": subnet(ec2)}
    template = ec2.create_launch_template(LaunchTemplateName="t", LaunchTemplateData=given)["LaunchTemplate"]
    named = {"LaunchTemplateId": template["LaunchTemplateId"], "Version": "1"}

    def create() -> None:
        aws("autoscaling").create_auto_scaling_group(LaunchTemplate=named, **group)

    assert "Invalid IAM Instance Profile name" in code(create)[1]
    clock.now += MAX_DELAY_S
    iam.add_role_to_instance_profile(InstanceProfileName="new", RoleName=new_role(iam))
    assert "Invalid IAM Instance Profile name" in code(create)[1], "its role is new"
    clock.now += MAX_DELAY_S
    assert ec2.run_instances(**launch)["Instances"]
    create()


def test_cloudformation_waits_until_a_role_and_its_profile_can_be_used(aws: Callable[[str], Any]) -> None:
    resources = nodes(1, data={"IamInstanceProfile": {"Arn": {"Fn::GetAtt": ["Profile", "Arn"]}}})
    resources["Role"] = {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {"Statement": []}}}
    resources["Profile"] = {"Type": "AWS::IAM::InstanceProfile", "Properties": {"Roles": [{"Ref": "Role"}]}}
    stacks = Stacks(aws)
    name = stacks.create(resources, options={"Capabilities": ["CAPABILITY_IAM"]})
    assert stacks.describe(name)["StackStatus"] == "CREATE_COMPLETE"


def image(ec2: Any) -> str:
    return str(ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"])


def subnet(ec2: Any) -> str:
    return str(ec2.describe_subnets()["Subnets"][0]["SubnetId"])


def new_role(iam: Any) -> str:
    return str(iam.create_role(RoleName="role", AssumeRolePolicyDocument=TRUST)["Role"]["RoleName"])
