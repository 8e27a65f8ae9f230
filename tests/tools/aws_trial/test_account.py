"""Facts about what a trial reads of the account: the resources' ways, and all that is left."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from moto import mock_aws

from cluster.aws.client import Aws
from tools.aws_trial import account
from tools.aws_trial.plan import TAG

NAME = "deepcdk-trial-ab12"


def event(state: str, second: int, logical_id: str = "Group", **more: str) -> Mapping[str, Any]:
    at = datetime.datetime(2026, 11, 23, 12, 0, second, tzinfo=datetime.UTC)
    kind = more.pop("kind", "AWS::AutoScaling::AutoScalingGroup")
    return {"LogicalResourceId": logical_id, "ResourceType": kind, "ResourceStatus": state, "Timestamp": at, **more}


def clean(text: str) -> str:
    return text.replace("deepcdktrialab12", "CLUSTER")


def test_a_resource_goes_through_states_from_its_first_event_to_its_last() -> None:
    events = [
        event("CREATE_IN_PROGRESS", 1),
        event("CREATE_IN_PROGRESS", 2, ResourceStatusReason="Resource creation Initiated"),
        event("CREATE_COMPLETE", 31),
        event("DELETE_IN_PROGRESS", 40),
        event("DELETE_FAILED", 50, ResourceStatusReason="in use"),
        event("UPDATE_COMPLETE", 59, "Other"),
    ]
    created, deleted = account.parse_events(events, clean)
    assert (created.phase, created.states, created.seconds) == ("create", ("CREATE_IN_PROGRESS", "CREATE_COMPLETE"), 30)
    assert created.reasons == ()
    assert (deleted.states, deleted.seconds) == (("DELETE_IN_PROGRESS", "DELETE_FAILED"), 10)
    assert deleted.reasons == ("in use",)


def test_ids_with_hashes_of_the_stacks_name_are_comparable_and_others_stay() -> None:
    rule = "WorkersfromdeepcdktrialabMasterED284C5722357F54B1".replace("trialab", "trialab12")
    found = account.parse_events(
        [
            event("CREATE_COMPLETE", 1, rule),
            event("CREATE_COMPLETE", 1, "NetworkVpc7FB7348F"),
            event("CREATE_COMPLETE", 1, NAME, kind="AWS::CloudFormation::Stack"),
        ],
        clean,
    )
    assert {each.logical_id for each in found} == {"WorkersfromCLUSTERMasterHASH", "NetworkVpc7FB7348F", "STACK"}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """Return clients of an empty account."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with mock_aws():
        yield Aws()


def test_nothing_is_left_in_an_account_with_clusters_of_others(aws: Aws) -> None:
    aws.client("ec2").create_volume(AvailabilityZone="us-east-1a", Size=1)
    aws.client("s3").create_bucket(Bucket="other")
    assert account.find_left(aws, NAME, [("AWS::S3::Bucket", "runs-that-are-gone")]) == []


def test_all_that_is_left_is_listed(aws: Aws) -> None:
    ec2, tags = aws.client("ec2"), [{"Key": TAG, "Value": NAME}]
    made: dict[str, str] = {}

    def tagged(kind: str) -> list[Any]:
        return [{"ResourceType": kind, "Tags": tags}]

    made["vpc"] = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc"))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=made["vpc"], CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=1, TagSpecifications=tagged("volume"))
    made["volume"] = volume["VolumeId"]
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))
    made["address"] = address["AllocationId"]
    gateway = ec2.create_nat_gateway(
        SubnetId=subnet, AllocationId=made["address"], TagSpecifications=tagged("natgateway")
    )
    made["gateway"] = gateway["NatGateway"]["NatGatewayId"]
    (image, *_) = ec2.describe_images(Owners=["amazon"])["Images"]
    launched = ec2.run_instances(
        ImageId=image["ImageId"], MinCount=1, MaxCount=1, SubnetId=subnet, TagSpecifications=tagged("instance")
    )
    made["instance"] = launched["Instances"][0]["InstanceId"]
    made["file system"] = aws.client("efs").create_file_system(CreationToken="x", Tags=tags)["FileSystemId"]  # type: ignore[arg-type]
    aws.client("s3").create_bucket(Bucket="runs")
    ec2.create_key_pair(KeyName=NAME)
    left = account.find_left(aws, NAME, [("AWS::S3::Bucket", "runs"), ("AWS::EC2::VPC", made["vpc"])])
    text = "\n".join(left)
    for kind, name in {**made, "bucket": "bucket runs", "key": f"key pair {NAME}"}.items():
        assert name in text, kind
    ec2.terminate_instances(InstanceIds=[made["instance"]])
    assert made["instance"] not in "\n".join(account.find_left(aws, NAME, []))


def test_what_cannot_be_asked_is_said(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ClientError

    def denied(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeVpcs")

    monkeypatch.setattr(aws.client("ec2"), "describe_vpcs", denied)
    (line,) = account.find_left(aws, NAME, [])
    assert line.startswith("VPCs: could not be asked")
    assert "AccessDenied" in line
